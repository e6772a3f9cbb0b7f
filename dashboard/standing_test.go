package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A gate of which only one key is closed is among those that hold back, though no instance waits
// there yet, and its link leads to that key. A running step says since when it runs. An instance
// that has ended is found by its key.
func TestPagesShowWhatIsClosedSinceWhenAStepRunsAndWhatHasEnded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	look := func(path string, status int) (body, location string) { // each at a dashboard that has read nothing yet
		h, err := dashboard.New(eng, dashboard.Options{})
		require.NoError(t, err)
		got := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:8080"
		h.ServeHTTP(got, r)
		require.Equal(t, status, got.Code, path)
		return got.Body.String(), got.Header().Get("Location")
	}
	for _, name := range []string{"per-tenant", "open"} {
		_, err := eng.Admin().SetGate(t.Context(), engine.Gate{Name: name, Machine: "other-" + name, Label: "tenant", Places: 2})
		require.NoError(t, err)
	}
	body, _ := look("/", http.StatusOK)
	require.NotContains(t, body, "Held back by limits")
	_, err = eng.Admin().CloseGate(t.Context(), "per-tenant/acme", time.Time{})
	require.NoError(t, err)
	body, _ = look("/", http.StatusOK)
	_, held, _ := strings.Cut(body, "Held back by limits</h2>")
	require.Contains(t, held, `<a href="./limits?keys=per-tenant"><bdi>per-tenant</bdi></a> <span class="tag amber">1 key closed</span>`)
	require.NotContains(t, held, "keys=open")
	body, _ = look("/limits?keys=per-tenant", http.StatusOK)
	require.Contains(t, body, "per-tenant/acme")
	body, _ = look("/api/gates", http.StatusOK)
	require.Contains(t, body, `"closed_keys":1`)

	var id int64
	var since time.Time
	require.NoError(t, pool.QueryRow(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, locked_by, lease_expires_at, updated_at)
		VALUES ('shop', 'start', 'executing', 'w', now() + interval '1 h', now() - interval '20 min') RETURNING id, updated_at`).Scan(&id, &since))
	body, _ = look(fmt.Sprintf("/instances/%d", id), http.StatusOK)
	require.Regexp(t, `<dt>Running since<dd><time datetime="`+regexp.QuoteMeta(since.UTC().Format(time.RFC3339Nano)), body)
	require.Contains(t, body, "it is running since "+since.UTC().Format("2006-01-02 15:04:05"))

	require.NoError(t, pool.QueryRow(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, correlation_key, correlation_scope)
		VALUES ('shop', 'start', 'done', now(), 'order:77', '{runnable,executing,awaiting_signal,awaiting_children}') RETURNING id`).Scan(&id))
	_, err = pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step) SELECT 'shop', 'start' FROM generate_series(1, 51000)`)
	require.NoError(t, err)
	_, location := look("/find?q=order:77", http.StatusSeeOther)
	require.Contains(t, location, "instances?prefix=order%3A77")
	body, _ = look("/instances?prefix=order%3A77", http.StatusOK)
	require.Contains(t, body, fmt.Sprintf(`<td class="id"><a href="./instances/%d">`, id), "behind 51,000 others")
	require.NotContains(t, body, "Searched back to")
}
