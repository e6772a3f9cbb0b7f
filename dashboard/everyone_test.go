package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// No user sees or changes more than the access covers, by any path.
func TestEveryRouteKeepsToTheAccess(t *testing.T) {
	t.Parallel()
	var access dashboard.Access
	w := newWorld(t, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) { return access, nil }})
	ctx := t.Context()
	id := w.insert(order{Card: "4111x1-state"}, func(s fsm.Spec) fsm.Spec { return s.Key("secret-key").Label("secret-label", "x") })
	failed := w.insert(order{Card: "4111x1-failed", Fails: true}, nil)
	_, err := w.eng.Signal(ctx, id, fsm.DeclareSignal[string]("secret-signal").With("4111x1-payload"))
	require.NoError(t, err)
	_, err = w.eng.Admin().SetGate(ctx, engine.Gate{Name: "secret-gate", Queue: "orders", Places: 3})
	require.NoError(t, err)
	_, err = w.eng.Admin().Edit(ctx, failed, fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"card": "4111x1-edited"}`), nil
	}), engine.Reason("secret-reason"))
	require.NoError(t, err)
	access = dashboard.Access{Level: dashboard.Operate}
	plan := w.post("/plan", http.StatusSeeOther, "verb", "cancel", "queue", "orders")

	var reads []string
	for _, root := range []string{"", "/api"} {
		for _, path := range []string{
			"/", "/machines", "/machine?name=shop", "/instances", "/instances?queue=orders", "/instances?machine=shop&key=secret-key", "/instances?status=failed",
			fmt.Sprintf("/instances/%d", id), fmt.Sprintf("/instances/%d", failed), fmt.Sprintf("/instances/%d/state", id),
			fmt.Sprintf("/instances/%d/result", id), fmt.Sprintf("/instances/%d/graph", id), fmt.Sprintf("/instances?parent=%d", id), "/queues", "/limits", "/limits?keys=secret-gate", "/gates",
			"/gates?keys=secret-gate", "/schedules", "/workers", "/audit", fmt.Sprintf("/audit?instance=%d", failed), "/overview", plan,
			"/find?q=secret-key", "/find?q=orders", "/suggest", "/export", "/export?format=csv", "/export?format=json&queue=orders",
		} {
			reads = append(reads, root+path)
		}
	}
	writes := []string{"/plan", plan + "/apply"}
	for _, verb := range []string{"cancel", "retry", "restart", "run_now", "reschedule", "pause", "resume", "edit", "rewind", "signal"} {
		writes = append(writes, fmt.Sprintf("/instances/%d/%s", id, verb), fmt.Sprintf("/instances/%d/%s", failed, verb))
	}
	for _, verb := range []string{
		"pause_queue", "resume_queue", "pause_schedule", "resume_schedule", "run_schedule", "delete_schedule", "close_gate", "open_gate", "drop_gate", "set_gate",
	} {
		writes = append(writes, "/verbs/"+verb)
	}
	before := w.snapshot()
	documents, all := []string{"4111x1"}, []string{"4111x1", "secret", "declined", "nightly"}
	for name, c := range map[string]struct {
		access dashboard.Access
		hides  []string
	}{
		"none":               {dashboard.Access{Actor: "eve"}, append([]string{"shop", "orders"}, all...)},
		"outline":            {dashboard.Access{Level: dashboard.Outline, Actor: "eve"}, documents},
		"read elsewhere":     {dashboard.Access{Level: dashboard.Read, Actor: "eve", Within: engine.Bounds{Queues: []string{"mails"}}}, all},
		"read another":       {dashboard.Access{Level: dashboard.Read, Actor: "eve", Within: engine.Bounds{Machines: []string{"mail"}}}, append([]string{"shop"}, all...)},
		"outline of a queue": {dashboard.Access{Level: dashboard.Outline, Actor: "eve", Within: engine.Bounds{Queues: []string{"orders"}}}, documents},
		"operate elsewhere":  {dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: engine.Bounds{Queues: []string{"mails"}}}, all},
		"operate another": {
			dashboard.Access{Level: dashboard.Operate, Actor: "eve", Within: engine.Bounds{Machines: []string{"mail"}, Queues: []string{"orders"}}}, append([]string{"shop"}, all...),
		},
	} {
		access = c.access
		for _, path := range reads {
			status, text := w.ask(http.MethodGet, path, "")
			require.Less(t, status, 500, "%s: %s: %s", name, path, text)
			text = strings.ReplaceAll(strings.ReplaceAll(text, "secret-key", ""), "keys=secret-gate", "") // the search box says what was asked
			text = nanoseconds.ReplaceAllString(text, "")                                                 // their digits may be those of a card
			if strings.Contains(path, "secret") || strings.Contains(path, "name=shop") || strings.Contains(path, "machine=shop") || strings.Contains(path, "orders") {
				continue // its own words are repeated
			}
			for _, secret := range c.hides {
				assert.NotContains(t, text, secret, "%s: %s", name, path)
			}
			if c.access.Level == dashboard.None {
				assert.Equal(t, http.StatusForbidden, status, path)
			}
		}
		for _, path := range writes {
			form := "name=orders&verb=cancel&all=1&queue=orders&reason=r&visit=0&state={}&step=start&at=1h&places=1&descendants=1"
			status, text := w.ask(http.MethodPost, path, form)
			if path == "/plan" && c.access.Level == dashboard.Operate { // it has none of them in it: TestNoRouteLeadsOutOfBounds
				assert.Equal(t, http.StatusSeeOther, status, "%s: %s", name, text)
				continue
			}
			assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, status, "%s: %s: %s", name, path, text)
		}
		status, text := w.ask(http.MethodPost, "/api/instances", `{"machine": "shop", "queue": "orders"}`)
		assert.Equal(t, http.StatusForbidden, status, "%s: %s", name, text)
	}
	require.Equal(t, before, w.snapshot(), "nothing was changed")
}

// nanoseconds are the nanoseconds of times.
var nanoseconds = regexp.MustCompile(`\.\d+Z`)

// ask sends a request, and returns the answer. A body in braces is JSON, another is a form.
func (w *world) ask(method, path, body string) (status int, text string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.URL+path, strings.NewReader(body))
	require.NoError(w.t, err)
	kind := "application/x-www-form-urlencoded"
	if strings.HasPrefix(body, "{") {
		kind = "application/json"
	}
	r.Header.Set("Content-Type", kind)
	answer, err := w.Client().Do(r)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, answer.Body.Close()) }()
	got, err := io.ReadAll(answer.Body)
	require.NoError(w.t, err)
	return answer.StatusCode, string(got)
}

// snapshot has all rows that verbs could change.
func (w *world) snapshot() (all []string) {
	w.t.Helper()
	ctx := w.t.Context()
	rows, err := w.eng.Ent().Instance.Query().All(ctx)
	require.NoError(w.t, err)
	for _, r := range rows {
		all = append(all, fmt.Sprint(r.ID, r.Status, r.Paused, r.Visit, string(r.State)))
	}
	entries, err := w.eng.Ent().Transition.Query().Count(ctx)
	require.NoError(w.t, err)
	gates, err := w.eng.Admin().Gates(ctx)
	require.NoError(w.t, err)
	return append(all, fmt.Sprint(entries, len(gates)))
}

// atOnce counts the statements under way, each of which holds a connection. A pool's own count
// says more: a connection that was given up is in it until it is closed, beside the next one.
type atOnce struct{ now, most atomic.Int32 }

func (a *atOnce) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	now := a.now.Add(1)
	for {
		if most := a.most.Load(); now <= most || a.most.CompareAndSwap(most, now) {
			return ctx
		}
	}
}

func (a *atOnce) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { a.now.Add(-1) }

// A database that does not answer holds up a few connections of the host, however many pages are
// open. The pages say so, and a verb that waits for a lock holds up no page.
func TestASlowDatabaseHoldsUpFewConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	var statements atOnce
	host := pgtest.Pool(t, url, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 40, &statements })
	eng, err := engine.New(engine.Config{Pool: host})
	require.NoError(t, err)
	ids, err := eng.InsertMany(t.Context(), []fsm.Spec{shop.New(order{}), shop.New(order{})})
	require.NoError(t, err)
	h, err := dashboard.New(eng, dashboard.Options{Timeout: 2 * time.Second, Heavy: 3})
	require.NoError(t, err)
	locker, err := pgtest.Pool(t, url).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Rollback(context.Background()) }) // also if the test fails: the pools wait for it
	_, err = locker.Exec(t.Context(), `LOCK TABLE gendurable.gen_durable, gendurable.gates, gendurable.definitions IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	paths := []string{"/", "/machines", "/instances", "/limits", "/machine?name=shop", "/queues", "/find?q=x", "/suggest", "/api/overview"}
	for n := range 91 {
		paths = append(paths, fmt.Sprintf("/instances/%d", 1000+n))
	}
	var all sync.WaitGroup
	for n, path := range paths {
		all.Go(func() {
			assert.Equal(t, http.StatusServiceUnavailable, ask(t, h, http.MethodGet, path, nil).StatusCode, "%d %s", n, path)
		})
	}
	all.Wait()
	require.Positive(t, statements.most.Load())
	require.LessOrEqual(t, statements.most.Load(), int32(3+4+1), "heavy reads, other reads, the count")
	require.NoError(t, locker.Rollback(t.Context()))

	// Another engine, since one whose count was cut off counts no more for a while.
	eng, err = engine.New(engine.Config{Pool: host})
	require.NoError(t, err)
	h, err = dashboard.New(eng, dashboard.Options{Timeout: patience})
	require.NoError(t, err)
	one, err := pgtest.Pool(t, url).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = one.Rollback(context.Background()) })
	_, err = one.Exec(t.Context(), `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`, int64(ids[0].ID))
	require.NoError(t, err)
	for range 20 {
		all.Go(func() {
			ask(t, h, http.MethodPost, fmt.Sprintf("/instances/%d/pause", ids[0].ID), nil)
		})
	}
	require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, fmt.Sprintf("/instances/%d", ids[0].ID), nil).StatusCode)
	require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, "/", nil).StatusCode)
	require.NoError(t, one.Rollback(t.Context()))
	all.Wait()
}
