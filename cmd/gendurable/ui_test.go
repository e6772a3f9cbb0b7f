package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The command serves this machine, in the name of the user who started it, until it is
// interrupted.
func TestUI(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.eng.Admin().PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	for _, c := range []struct {
		args []string
		sees bool
		post int
	}{
		{[]string{"--read-only"}, true, http.StatusForbidden}, {[]string{"--within", "queue=orders"}, false, http.StatusForbidden}, {nil, true, http.StatusSeeOther},
	} {
		address, end := serve(t, append([]string{"ui", "--listen", "127.0.0.1:0", "--database-url", h.url, "--actor", "ada"}, c.args...)...)
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		client.Jar = letIn(t, address)
		address, _, _ = strings.Cut(address, "?")
		answer, err := client.Get(address + "queues")
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Equal(t, c.sees, strings.Contains(string(body), "mail"), c.args)
		answer, err = client.PostForm(address+"verbs/resume_queue", url.Values{"name": {"mail"}, "reason": {"a test"}})
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.post, answer.StatusCode)
		client.CloseIdleConnections()
		require.Equal(t, codeDone, end())
	}
	require.Contains(t, h.run("audit", "--verb", "resume_queue").out, "ada")
	require.Equal(t, codeUsage, h.run("ui", "--listen", "nowhere:port").code)
}

// letIn opens a printed address, and returns the cookies that a browser has then.
func letIn(t *testing.T, address string) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	answer, err := client.Get(address) //nolint:noctx // the test's own server
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Empty(t, answer.Request.URL.RawQuery, "the token does not stay in the address")
	client.CloseIdleConnections()
	return jar
}

// Another user of the machine reaches the port, but neither sees nor changes anything: the address
// that is printed lets one browser in, once, and nothing else does.
func TestUILetsInTheBrowserOfItsUser(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.eng.Admin().PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	opened, end := serve(t, "ui", "--listen", "127.0.0.1:0", "--database-url", h.url)
	address, token, ok := strings.Cut(opened, "?token=")
	require.True(t, ok)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	ask := func(method, path string, cookies ...*http.Cookie) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader("name=mail&reason=r"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, c := range cookies {
			r.AddCookie(c)
		}
		answer, err := client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer, string(body)
	}
	cookie := &http.Cookie{Name: "gendurable-ui-" + address[strings.LastIndex(address, ":")+1:len(address)-1]}
	refused := func(answer *http.Response, body string) {
		t.Helper()
		require.Equal(t, http.StatusForbidden, answer.StatusCode)
		require.Contains(t, body, "Open the address that the terminal shows")
		require.NotContains(t, body, "mail")
		require.Empty(t, answer.Cookies())
	}
	for _, path := range []string{"", "queues", "api/queues", "healthz", "?token=", "?token=" + token[1:], "?token=" + token + "A", "queues?token=x"} {
		refused(ask(http.MethodGet, path))
	}
	refused(ask(http.MethodPost, "verbs/resume_queue"))
	refused(ask(http.MethodPost, "verbs/resume_queue?token="+token))
	cookie.Value = token
	refused(ask(http.MethodGet, "queues", cookie))
	answer, _ := ask(http.MethodGet, "?token="+token)
	require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	require.Equal(t, "./", answer.Header.Get("Location"))
	require.Len(t, answer.Cookies(), 1)
	given := answer.Cookies()[0]
	require.Equal(t, cookie.Name, given.Name)
	require.True(t, given.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, given.SameSite)
	require.NotContains(t, given.Value, token)
	refused(ask(http.MethodGet, "?token="+token)) // it was good once
	refused(ask(http.MethodGet, "queues"))
	_, body := ask(http.MethodGet, "queues", given)
	require.Contains(t, body, "mail")
	answer, _ = ask(http.MethodPost, "verbs/resume_queue", given)
	require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	require.Equal(t, codeDone, end())
}

// An address lets one browser in, within its time, and the next one replaces it. A browser that is
// in stays, also if it opens an old address again.
func TestEachAddressLetsOneBrowserIn(t *testing.T) {
	t.Parallel()
	s := newSessions(http.NotFoundHandler(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
	at := time.Now()
	s.now = func() time.Time { return at }
	visit := func(address string, c *http.Cookie) *http.Response {
		r := httptest.NewRequest(http.MethodGet, address, nil)
		if c != nil {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Result()
	}
	require.Equal(t, http.StatusForbidden, visit("/?token=", nil).StatusCode) //nolint:bodyclose // a recorder's
	first := s.open()
	one := visit(first, nil).Cookies()[0]                                //nolint:bodyclose // a recorder's
	require.Equal(t, http.StatusForbidden, visit(first, nil).StatusCode) //nolint:bodyclose // a recorder's
	again := visit(first+"&q=a", one)                                    //nolint:bodyclose // a recorder's
	require.Equal(t, http.StatusSeeOther, again.StatusCode)
	require.Equal(t, "./?q=a", again.Header.Get("Location"))
	require.Empty(t, again.Cookies())
	unused := s.open()
	require.Equal(t, http.StatusSeeOther, visit(unused, one).StatusCode) //nolint:bodyclose // a recorder's
	require.Equal(t, http.StatusSeeOther, visit(unused, nil).StatusCode) //nolint:bodyclose // a recorder's
	old := s.open()
	at = at.Add(tokenLife)
	require.Equal(t, http.StatusForbidden, visit(old, nil).StatusCode) //nolint:bodyclose // a recorder's
	replaced := s.open()
	var said []string
	s.more(strings.NewReader("\n\n"), func(format string, args ...any) { said = append(said, args[0].(string)) })
	require.Len(t, said, 2)
	for _, gone := range []string{replaced, said[0]} {
		require.Equal(t, http.StatusForbidden, visit(gone, nil).StatusCode) //nolint:bodyclose // a recorder's
	}
	require.Equal(t, http.StatusNotFound, visit("/x", one).StatusCode)    //nolint:bodyclose // a recorder's
	require.Equal(t, http.StatusSeeOther, visit(said[1], nil).StatusCode) //nolint:bodyclose // a recorder's
	for range maxSessions {
		require.Equal(t, http.StatusSeeOther, visit(s.open(), nil).StatusCode) //nolint:bodyclose // a recorder's
	}
	require.Equal(t, http.StatusForbidden, visit("/x", one).StatusCode, "so many get in") //nolint:bodyclose // a recorder's
}

// serve runs a command that serves a dashboard, and returns its address and how to end it.
func serve(t *testing.T, args ...string) (address string, end func() exitCode) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	read, write := io.Pipe()
	code := make(chan exitCode, 1)
	go func() {
		code <- run(ctx, args, &console{in: strings.NewReader(""), out: io.Discard, errs: write})
		_ = write.Close()
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, read) }()
	_, after, ok := strings.Cut(line, " at ")
	require.True(t, ok, line)
	return strings.Fields(after)[0], func() exitCode {
		interrupt()
		return <-code
	}
}

// A cluster's dashboard shows what is at any place, and leaves out one that is down.
func TestClusterUI(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t, 2)
	require.Equal(t, codeDone, h.cluster("init", h.places).code)
	for place, url := range h.urls {
		pool := pgtest.Pool(t, url)
		eng, err := engine.New(engine.Config{Pool: pool})
		require.NoError(t, err)
		_, err = eng.Admin().PauseQueue(t.Context(), fmt.Sprint("mail-", place))
		require.NoError(t, err)
	}
	args := []string{"cluster", "ui", "--listen", "127.0.0.1:0", "--wait", "1s"}
	address, end := serve(t, append(args, "--place", h.places[0], "--place", h.places[1])...)
	client := &http.Client{Jar: letIn(t, address)}
	defer client.CloseIdleConnections()
	address, _, _ = strings.Cut(address, "?")
	answer, err := client.Get(address + "queues") //nolint:noctx // the test's own server
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, string(body), "mail-0")
	require.Contains(t, string(body), "mail-1")
	client.CloseIdleConnections()
	require.Equal(t, codeDone, end())
	require.Equal(t, codeUsage, h.run("cluster", "ui").code)
}
