package dashboard_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
)

// unasked returns an engine on a pool that has no server: a refused request must not get as far.
func unasked(t *testing.T) *engine.Engine {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	return eng
}

// ask sends a request to a handler as if it came from this machine, unless change says otherwise.
func ask(t *testing.T, h http.Handler, method, target string, change func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer := w.Result()
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestNothingIsOpenByDefault(t *testing.T) {
	t.Parallel()
	h, err := dashboard.New(unasked(t), dashboard.Options{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"this machine":         {nil, http.StatusOK},
		"IPv6":                 {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:1", "[::1]:8080" }, http.StatusOK},
		"another machine":      {func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, http.StatusForbidden},
		"another name":         {func(r *http.Request) { r.Host = "rebound.example.com" }, http.StatusForbidden},
		"through a proxy":      {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }, http.StatusForbidden},
		"through a standard":   {func(r *http.Request) { r.Header.Set("Forwarded", "for=192.0.2.1") }, http.StatusForbidden},
		"as old proxies do":    {func(r *http.Request) { r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0 }, http.StatusForbidden},
		"no address, a socket": {func(r *http.Request) { r.RemoteAddr = "@" }, http.StatusForbidden},
	} {
		require.Equal(t, c.want, ask(t, h, http.MethodGet, "/healthz", c.change).StatusCode, name)
	}
}

func TestAuthorizeDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		access dashboard.Access
		err    error
		get    int
		post   int
	}{
		"nobody":   {dashboard.Access{Actor: "eve"}, nil, http.StatusForbidden, http.StatusForbidden},
		"an error": {dashboard.Access{Level: dashboard.Operate}, errors.New("no session"), http.StatusForbidden, http.StatusForbidden},
		"outline":  {dashboard.Access{Level: dashboard.Outline}, nil, http.StatusOK, http.StatusForbidden},
		"read":     {dashboard.Access{Level: dashboard.Read}, nil, http.StatusOK, http.StatusForbidden},
		"operate":  {dashboard.Access{Level: dashboard.Operate}, nil, http.StatusOK, http.StatusMethodNotAllowed},
	} {
		h, err := dashboard.New(unasked(t), dashboard.Options{
			Authorize: func(*http.Request) (dashboard.Access, error) { return c.access, c.err },
		})
		require.NoError(t, err)
		far := func(r *http.Request) { r.RemoteAddr, r.Host = "192.0.2.1:1", "ops.example.com" }
		require.Equal(t, c.get, ask(t, h, http.MethodGet, "/healthz", far).StatusCode, name)
		require.Equal(t, c.post, ask(t, h, http.MethodPost, "/healthz", far).StatusCode, name)
	}
}

func TestOtherSitesCannotSend(t *testing.T) {
	t.Parallel()
	h, err := dashboard.New(unasked(t), dashboard.Options{TrustedOrigins: []string{"https://ops.example.com"}})
	require.NoError(t, err)
	post := func(header, value string) int {
		return ask(t, h, http.MethodPost, "/healthz", func(r *http.Request) { r.Header.Set(header, value) }).StatusCode
	}
	const passed = http.StatusMethodNotAllowed // the guard let it through, to a path that takes no POST
	require.Equal(t, http.StatusForbidden, post("Sec-Fetch-Site", "cross-site"))
	require.Equal(t, http.StatusForbidden, post("Sec-Fetch-Site", "same-site"))
	require.Equal(t, http.StatusForbidden, post("Origin", "https://evil.example.com"))
	require.Equal(t, passed, post("Sec-Fetch-Site", "same-origin"))
	require.Equal(t, passed, post("Origin", "http://localhost:8080"))
	require.Equal(t, passed, post("Origin", "https://ops.example.com"))
	require.Equal(t, http.StatusMethodNotAllowed, ask(t, h, http.MethodDelete, "/healthz", nil).StatusCode)
}

func TestHeadersKeepBrowsersFromMischief(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		frames []string
		want   string
		deny   string
	}{
		{nil, "frame-ancestors 'none'", "DENY"},
		{[]string{"https://ops.example.com"}, "frame-ancestors https://ops.example.com", ""},
	} {
		h, err := dashboard.New(unasked(t), dashboard.Options{Frames: c.frames})
		require.NoError(t, err)
		answer := ask(t, h, http.MethodGet, "/healthz", nil)
		require.Contains(t, answer.Header.Get("Content-Security-Policy"), c.want)
		require.Contains(t, answer.Header.Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, answer.Header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", answer.Header.Get("Referrer-Policy"))
		require.Equal(t, c.deny, answer.Header.Get("X-Frame-Options"))
	}
}

func TestMountedBelowAPath(t *testing.T) {
	t.Parallel()
	stripped, err := dashboard.New(unasked(t), dashboard.Options{})
	require.NoError(t, err)
	based, err := dashboard.New(unasked(t), dashboard.Options{Base: "/ops/durable"})
	require.NoError(t, err)
	for name, h := range map[string]http.Handler{"stripped": http.StripPrefix("/ops/durable", stripped), "based": based} {
		require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, "/ops/durable/healthz", nil).StatusCode, name)
		answer := ask(t, h, http.MethodGet, "/ops/durable?x=1", nil)
		require.Equal(t, http.StatusPermanentRedirect, answer.StatusCode, name)
		require.Equal(t, "durable/", answer.Header.Get("Location"), name)
	}
}

func TestWrongOptionsNameTheirField(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]dashboard.Options{
		"Timeout":           {Timeout: -1},
		"Refresh":           {Refresh: 1},
		"Heavy":             {Heavy: dashboard.MaxHeavy + 1},
		"Base":              {Base: "ops/"},
		"Frames[0]":         {Frames: []string{"https://a.example.com; script-src *"}},
		"TrustedOrigins[1]": {TrustedOrigins: []string{"https://a.example.com", "b.example.com"}},
	} {
		_, err := dashboard.New(unasked(t), o)
		wrong, ok := errors.AsType[*dashboard.OptionError](err)
		require.True(t, ok, field)
		require.Equal(t, field, wrong.Field)
		require.Contains(t, wrong.Error(), field)
		require.Error(t, wrong.Unwrap())
	}
}

func TestABaseIsACleanPath(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"//x", "/x//y", "/", "x", "/x/", "/x/../y", "/./x", "/x?y", "/%78", "/x#", `/x\y`} {
		_, err := dashboard.New(unasked(t), dashboard.Options{Base: base})
		wrong, ok := errors.AsType[*dashboard.OptionError](err)
		require.True(t, ok, base)
		require.Equal(t, "Base", wrong.Field)
	}
	for _, base := range []string{"", "/x", "/x/y.z"} {
		_, err := dashboard.New(unasked(t), dashboard.Options{Base: base})
		require.NoError(t, err)
	}
}

func TestLevelsHaveNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"none", "outline", "read", "operate", "unknown"}, []string{
		dashboard.None.String(), dashboard.Outline.String(), dashboard.Read.String(), dashboard.Operate.String(), dashboard.Level(9).String(),
	})
}
