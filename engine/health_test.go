package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/health"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/migrations"
)

// wire is a way to a database that can be cut, or swallow what is sent, and be mended.
type wire struct {
	listener net.Listener
	server   string

	mu   sync.Mutex
	cut  bool
	mute bool
	open map[net.Conn]bool
	all  sync.WaitGroup
}

// wired returns a way to a database, and its URL that goes this way.
func wired(t *testing.T, database string) (*wire, string) {
	t.Helper()
	address, err := url.Parse(database)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: listener, server: address.Host, open: map[net.Conn]bool{}}
	w.all.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.set(true, false)
		w.all.Wait()
	})
	address.Host = listener.Addr().String()
	return w, address.String()
}

func (w *wire) set(cut, mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.mute = cut, mute
	if cut {
		for c := range w.open {
			_ = c.Close()
		}
		clear(w.open)
	}
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.server)
		w.mu.Lock()
		if err != nil || w.cut {
			_ = near.Close()
			if err == nil {
				_ = far.Close()
			}
			w.mu.Unlock()
			continue
		}
		w.open[near], w.open[far] = true, true
		w.mu.Unlock()
		w.all.Go(func() { w.carry(near, far) })
		w.all.Go(func() { w.carry(far, near) })
	}
}

func (w *wire) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		mute := w.mute
		w.mu.Unlock()
		if mute {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func probed(t *testing.T, handler http.Handler, path string) (status int, body map[string]any) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	answer := recorder.Result()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusServiceUnavailable {
		require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
		require.NoError(t, json.Unmarshal(text, &body))
	}
	return answer.StatusCode, body
}

// healthy asks until an engine is as expected.
func healthy(t *testing.T, e *engine.Engine, ready bool) (h engine.Health) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		h, err = e.Health(t.Context())
		return err == nil && h.Ready == ready
	}, 30*time.Second, 10*time.Millisecond)
	return h
}

func kinds(h engine.Health) (kinds []engine.ReasonKind) {
	for _, r := range h.Reasons {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

func TestHealthOfAWorker(t *testing.T) {
	t.Parallel()
	way, database := wired(t, pgtest.Migrated(t))
	pool := pgtest.Pool(t, database)
	gate := make(chan struct{})
	e := open(t, pool, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(func(ctx context.Context, s string) (string, error) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return s, nil
		})}
		c.Queues = map[string]engine.Queue{"default": {Concurrency: 3}, "other": {Concurrency: 1}}
	})
	h, err := e.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.Health{
		Reasons: []engine.HealthReason{{Kind: engine.ReasonNotStarted, Seen: "not started", Do: "call Start, and look what it returns"}}, State: engine.StateCreated, Database: true, Schema: migrations.StateCurrent, Activity: e.Activity(),
	}, h)
	require.NoError(t, e.Start(t.Context()))

	id, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)
	want := []engine.QueueActivity{{Name: "default", Running: 1, Slots: 3, Idle: true}, {Name: "other", Slots: 1, Idle: true}}
	require.Eventually(t, func() bool { return e.Activity().InFlight == 1 && slices.Equal(e.Activity().Queues, want) }, 30*time.Second, time.Millisecond)
	h = healthy(t, e, true)
	require.Len(t, h.Queues, 2)
	require.WithinDuration(t, time.Now(), h.LastPoll, 10*time.Second)
	require.Zero(t, h.LastCommit)

	way.set(true, false)
	h = healthy(t, e, false)
	require.Equal(t, []engine.ReasonKind{engine.ReasonDatabase}, kinds(h))
	require.Equal(t, h.LastPoll, h.Reasons[0].Since)
	require.NotEmpty(t, h.Reasons[0].Do)
	require.Error(t, h.Err)
	require.Equal(t, 1, h.InFlight)
	way.set(false, false)
	healthy(t, e, true)

	close(gate)
	_, err = echoes.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Eventually(t, func() bool { a := e.Activity(); return a.InFlight == 0 && a.Queues[0].Running == 0 }, 30*time.Second, time.Millisecond)
	require.False(t, e.Activity().LastCommit.IsZero())
	require.NoError(t, e.Stop(t.Context()))
	require.Equal(t, []engine.ReasonKind{engine.ReasonStopped}, kinds(healthy(t, e, false)))
}

// A network that swallows is noticed within HealthTimeout, also by those who come while another
// waits.
func TestHealthHandler(t *testing.T) {
	t.Parallel()
	way, database := wired(t, pgtest.Migrated(t))
	e := open(t, pgtest.Pool(t, database), rarely)
	handler := health.Handler(e)
	status, body := probed(t, handler, "/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, []any{map[string]any{"kind": "not_started", "seen": "not started", "do": "call Start, and look what it returns"}}, body["reasons"])
	require.NoError(t, e.Start(t.Context()))
	require.Eventually(t, func() bool { status, body = probed(t, handler, "/ready"); return status == http.StatusOK }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, "started", body["state"])
	require.Equal(t, "current", body["schema"])
	require.Len(t, body["queues"], 1)

	way.set(false, true)
	require.Eventually(t, func() bool {
		status, body = probed(t, handler, "/ready")
		return status == http.StatusServiceUnavailable
	},
		30*time.Second, 10*time.Millisecond)
	require.Contains(t, fmt.Sprint(body["reasons"]), "the database does not answer in time")
	idle := health.Handler(open(t, pgtest.Pool(t, database), rarely))
	probe := func(handler http.Handler, status *int, body *map[string]any) func(context.Context) error {
		return func(context.Context) error { *status, *body = probed(t, handler, "/live"); return nil }
	}
	var asIdle int
	var bodyOfIdle map[string]any
	steady.Within(t, engine.HealthTimeout, probe(idle, &asIdle, &bodyOfIdle), probe(handler, &status, &body))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"live": true, "state": "started"}, body)
	way.set(true, false)

	status, _ = probed(t, handler, "/else")
	require.Equal(t, http.StatusNotFound, status)
	require.NoError(t, e.Stop(t.Context()))
	status, body = probed(t, handler, "/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, fmt.Sprint(body["reasons"]), "kind:stopped")
	status, _ = probed(t, handler, "/live")
	require.Equal(t, http.StatusOK, status)
}

func TestHealthOfAClient(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	h, err := e.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.Health{Ready: true, State: engine.StateCreated, Database: true, Schema: migrations.StateCurrent}, h)

	unmigrated := open(t, pgtest.Pool(t, pgtest.Database(t)))
	h, err = unmigrated.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, []engine.ReasonKind{engine.ReasonSchema}, kinds(h))
	require.Contains(t, h.Reasons[0].Do, "migrate up")
	require.True(t, h.Database)

	over, cancel := context.WithCancelCause(t.Context())
	cancel(errTold)
	_, err = e.Health(over)
	require.ErrorIs(t, err, errTold)
}

// A host that uses all connections for a while makes the engine slow, not broken.
func TestHealthOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t), func(c *pgxpool.Config) { c.MaxConns = 2 })
	e := open(t, pool)
	var held []*pgxpool.Conn
	for range 2 {
		c, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, c)
	}
	h, err := e.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, []engine.ReasonKind{engine.ReasonPool}, kinds(h))
	for _, c := range held {
		c.Release()
	}
	require.True(t, healthy(t, e, true).Database)
}

// A worker whose pool has no connection left for it is not ready, and is again when it has.
func TestHealthOfAWorkerInAnExhaustedPool(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t), func(c *pgxpool.Config) { c.MaxConns = 3 })
	e := working(t, pool, rarely)
	healthy(t, e, true)
	var held []*pgxpool.Conn
	for range 3 {
		c, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, c)
	}
	h := healthy(t, e, false)
	require.Equal(t, []engine.ReasonKind{engine.ReasonPool}, kinds(h))
	require.False(t, h.Reasons[0].Since.IsZero())
	for _, c := range held {
		c.Release()
	}
	healthy(t, e, true)
}

// short makes the leases of a worker as short as they may be.
func short(c *engine.Config) { c.Lease = 3 * time.Second }

// unready asks until an engine is not ready for all of these reasons, and returns what was seen for
// each. All say since when and what to do.
func unready(t *testing.T, e *engine.Engine, because ...engine.ReasonKind) (seen map[engine.ReasonKind]string) {
	t.Helper()
	var h engine.Health
	require.Eventually(t, func() bool {
		var err error
		h, err = e.Health(t.Context())
		found := kinds(h)
		return err == nil && !h.Ready && !slices.ContainsFunc(because, func(k engine.ReasonKind) bool { return !slices.Contains(found, k) })
	}, time.Minute, 50*time.Millisecond, "not for %v", because)
	require.True(t, h.Database)
	seen = map[engine.ReasonKind]string{}
	for _, r := range h.Reasons {
		seen[r.Kind] = r.Seen
		require.NotEmpty(t, r.Do, r.Kind)
		require.True(t, r.Kind == engine.ReasonReadOnly || !r.Since.IsZero(), r.Kind)
	}
	return seen
}

// A database that takes no writes makes an idle worker unready, and a client: at once by what a
// session says, and after a lease by what the worker's loops could not do. An outcome that waits is
// committed when it takes writes again.
func TestHealthOnAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.Migrated(t)
	operator := pgtest.Pool(t, database, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off"
		c.ConnConfig.RuntimeParams["application_name"] = "operator"
	})
	set := func(to string) {
		_, err := operator.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = `+to+`', current_database()); END $$`)
		require.NoError(t, err)
		_, err = operator.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name <> 'operator'`)
		require.NoError(t, err)
	}
	running, gate := make(chan struct{}), make(chan struct{})
	pool := pgtest.Pool(t, database)
	e := working(t, pool, short, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(func(_ context.Context, s string) (string, error) {
			close(running)
			<-gate
			return s, nil
		})}
		c.Queues = map[string]engine.Queue{"default": {}}
	})
	idle, asking := working(t, pool, rarely, short, func(c *engine.Config) {
		c.Queues = map[string]engine.Queue{"other": {}}
	}), open(t, pool)
	id, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)
	<-running
	healthy(t, e, true)
	healthy(t, idle, true)

	set("on")
	unready(t, asking, engine.ReasonReadOnly)
	var seen map[engine.ReasonKind]string
	steady.Eventually(t, func() bool { // on a busy machine a heartbeat may first run out of time
		seen = unready(t, idle, engine.ReasonReadOnly, engine.ReasonHeartbeat)
		return strings.Contains(seen[engine.ReasonHeartbeat], "the database takes no writes")
	}, "what the heartbeat says: %v", &seen)
	close(gate)
	seen = unready(t, e, engine.ReasonReadOnly, engine.ReasonCommit, engine.ReasonHeartbeat)
	require.Contains(t, seen[engine.ReasonCommit], "the database takes no writes")

	set("off")
	healthy(t, e, true)
	healthy(t, idle, true)
	healthy(t, asking, true)
	_, err = echoes.Wait(within(t), e, id)
	require.NoError(t, err)
}

// A role's limit of connections leaves none for the heartbeats, while the pool has its own: the
// worker polls, claims and commits, and yet no claim of it lasts longer than its lease.
func TestHealthWithoutAConnectionForHeartbeats(t *testing.T) {
	t.Parallel()
	database := pgtest.Migrated(t)
	operator := pgtest.Pool(t, database)
	role := "limited_" + strings.ReplaceAll(uuid.NewString(), "-", "_")
	_, err := operator.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN PASSWORD 'app' IN ROLE `+operator.Config().ConnConfig.User)
	require.NoError(t, err)
	t.Cleanup(func() { // before the pools close
		_, _ = operator.Exec(context.Background(), `DROP ROLE `+role)
	})
	const conns = 3
	pool := pgtest.Pool(t, database, func(c *pgxpool.Config) {
		c.ConnConfig.User, c.ConnConfig.Password = role, "app"
		c.MinConns, c.MaxConns = conns, conns
	})
	cut := make(chan error, 1000)
	e := working(t, pool, short, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})}
		c.Queues = map[string]engine.Queue{"default": {Concurrency: 1}}
		c.DrainTimeout = time.Millisecond
		c.Hooks = []engine.Hooks{{Step: func(_ context.Context, s engine.StepEvent) { cut <- s.CutOff }}}
	})
	healthy(t, e, true)
	require.Eventually(t, func() bool { return pool.Stat().TotalConns() == conns }, 30*time.Second, 10*time.Millisecond)
	limit := func(n int) {
		_, err := operator.Exec(t.Context(), fmt.Sprintf(`ALTER ROLE %s CONNECTION LIMIT %d`, role, n))
		require.NoError(t, err)
	}
	limit(conns)
	ended := 0
	require.NoError(t, operator.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a
		WHERE a.usename = $1 AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.mode = 'ShareLock')`, role).Scan(&ended))
	require.Equal(t, 1, ended, "the heartbeat's session has the worker's liveness lock")
	steady.Eventually(t, func() bool { // an attempt that takes long shows its patience first
		return strings.Contains(unready(t, e, engine.ReasonHeartbeat)[engine.ReasonHeartbeat], "there is no connection left for it")
	})

	// So a step that is longer than that begins again and again. It costs no attempt, and is counted.
	id, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)
	for range 3 {
		require.ErrorIs(t, <-cut, fsm.ErrLeaseLost)
	}
	i, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, i.Attempt+i.Crashes)
	list, err := e.Errors(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, fsm.AttemptReleased, list[0].Kind)
	require.GreaterOrEqual(t, list[0].Times, 2, "the third may not have been given back yet")
	require.Contains(t, list[0].String(), " times in a row)")
	require.NotEmpty(t, list[0].Worker)
	causes, err := e.Admin().Why(t.Context(), id)
	require.NoError(t, err)
	last := causes[len(causes)-1]
	require.Equal(t, engine.CauseRepeats, last.Kind, "%v", causes)
	require.GreaterOrEqual(t, last.Count, 2)
	require.Greater(t, len(causes), 1, "what it does now, or waits for, comes first")
	limit(-1)
	healthy(t, e, true)
}

func TestLag(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	_, err := e.InsertMany(t.Context(), []fsm.Spec{
		echoes.New("a"), echoes.New("b").Priority(7), echoes.New("c").After(time.Hour), echoes.New("d").Queue("later").After(time.Hour),
	})
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET eligible_at = now() - interval '5 minutes' WHERE priority = 7`)
	require.NoError(t, err)
	lag, err := e.Lag(t.Context(), "default", "later", "none")
	require.NoError(t, err)
	require.InDelta(t, (5 * time.Minute).Seconds(), lag["default"].Seconds(), 60)
	delete(lag, "default")
	require.Equal(t, map[string]time.Duration{"later": 0, "none": 0}, lag)
	_, err = e.Lag(t.Context(), "default", "a\x00b")
	require.ErrorAs(t, err, new(*engine.QueryError), "no report of Postgres")
}
