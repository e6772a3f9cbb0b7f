package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
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
		Reasons: []string{"not started"}, State: engine.StateCreated, Database: true, Schema: migrations.StateCurrent, Activity: e.Activity(),
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
	require.Equal(t, []string{"the database is not reachable"}, h.Reasons)
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
	require.Equal(t, []string{"stopped"}, healthy(t, e, false).Reasons)
}

// A network that swallows is noticed within HealthTimeout, also by those who come while another
// waits.
func TestHealthHandler(t *testing.T) {
	t.Parallel()
	way, database := wired(t, pgtest.Migrated(t))
	e := open(t, pgtest.Pool(t, database), rarely)
	handler := engine.HealthHandler(e)
	status, body := probed(t, handler, "/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, []any{"not started"}, body["reasons"])
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
	require.Equal(t, []any{"the database does not answer in time"}, body["reasons"])
	idle := engine.HealthHandler(open(t, pgtest.Pool(t, database), rarely))
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
	require.Contains(t, body["reasons"], "stopped")
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
	require.Equal(t, []string{"the schema is missing"}, h.Reasons)
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
	require.Equal(t, []string{"the database does not answer in time"}, h.Reasons)
	for _, c := range held {
		c.Release()
	}
	require.True(t, healthy(t, e, true).Database)
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
