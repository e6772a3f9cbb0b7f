package engine_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// outage is a database that a pool cannot reach while it is down.
type outage struct {
	down atomic.Bool
	pool *pgxpool.Pool
}

func newOutage(t *testing.T) *outage {
	o := &outage{}
	o.pool = pgtest.Pool(t, pgtest.Migrated(t), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if o.down.Load() {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return dial(ctx, network, address)
		}
	})
	return o
}

func (o *outage) begin() {
	o.down.Store(true)
	o.pool.Reset()
}

// tried is told each line of a log.
type tried struct {
	slog.Handler
	lines chan string
}

func (tried) Enabled(context.Context, slog.Level) bool { return true }

func (h tried) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.lines <- r.Message:
	default:
	}
	return nil
}

func verbs(e *engine.Engine, id fsm.ID) map[string]func(ctx context.Context) error {
	admin := e.Admin()
	return map[string]func(ctx context.Context) error{
		"Insert":      func(ctx context.Context) error { _, err := e.Insert(ctx, echoes.New("a")); return err },
		"keyed":       func(ctx context.Context) error { _, err := e.Insert(ctx, echoes.New("a").Key("k")); return err },
		"InsertMany":  func(ctx context.Context) error { _, err := e.InsertMany(ctx, []fsm.Spec{echoes.New("a")}); return err },
		"GetOrInsert": func(ctx context.Context) error { _, err := e.GetOrInsert(ctx, echoes.New("a").Key("l")); return err },
		"Signal":      func(ctx context.Context) error { _, err := e.Signal(ctx, id, paid.With(1).DedupKey("d")); return err },
		"SignalOrInsert": func(ctx context.Context) error {
			_, err := e.SignalOrInsert(ctx, echoes.New("a").Key("m"), paid.With(1).DedupKey("d"))
			return err
		},
		"Get":          func(ctx context.Context) error { _, err := e.Get(ctx, id); return err },
		"List":         func(ctx context.Context) error { _, err := e.List(ctx, engine.Query{}); return err },
		"Errors":       func(ctx context.Context) error { _, err := e.Errors(ctx, id); return err },
		"Lag":          func(ctx context.Context) error { _, err := e.Lag(ctx, "default"); return err },
		"Why":          func(ctx context.Context) error { _, err := admin.Why(ctx, id); return err },
		"Workers":      func(ctx context.Context) error { _, err := admin.Workers(ctx); return err },
		"PausedQueues": func(ctx context.Context) error { _, err := admin.PausedQueues(ctx); return err },
		"Schedules":    func(ctx context.Context) error { _, err := admin.Schedules(ctx, engine.ScheduleQuery{}); return err },
		"Pause":        func(ctx context.Context) error { _, err := admin.Pause(ctx, id); return err },
		"PauseQueue":   func(ctx context.Context) error { _, err := admin.PauseQueue(ctx, "default"); return err },
		"Bulk": func(ctx context.Context) error {
			_, err := admin.Bulk(ctx, engine.VerbCancel, engine.Filter{Labels: map[string]string{"a": "b"}})
			return err
		},
	}
}

func TestEveryVerbWaitsOutAnOutage(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	log := tried{slog.DiscardHandler, make(chan string, 1000)}
	e := open(t, o.pool, func(c *engine.Config) { c.Logger = slog.New(log) })
	id, err := e.Insert(t.Context(), ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	for name, verb := range verbs(e, id) {
		o.begin()
		over := make(chan error, 1)
		go func() { over <- verb(t.Context()) }()
		for range 2 { // it has met the outage, and met it again
			select {
			case <-log.lines:
			case err := <-over:
				t.Fatalf("%s has not waited: %v", name, err)
			}
		}
		o.down.Store(false)
		require.NoError(t, <-over, name)
		for len(log.lines) > 0 {
			<-log.lines
		}
	}
}

func TestAVerbWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	e := open(t, o.pool)
	id, err := e.Insert(t.Context(), ticket.New("A1"))
	require.NoError(t, err)
	o.begin()
	for name, verb := range verbs(e, id) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.ErrorIs(t, verb(ctx), context.DeadlineExceeded, name)
		cancel()
	}
}

func TestAClosedPoolIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	e := open(t, o.pool)
	o.pool.Close()
	for name, verb := range verbs(e, 1) {
		require.ErrorContains(t, verb(t.Context()), "closed pool", name)
	}
}

// After an outage a pool has dead connections. They do not make a read fail.
func TestGetGoesOnAfterDeadConnections(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	id, err := e.Insert(t.Context(), echoes.New("a"))
	require.NoError(t, err)
	conns := pool.AcquireAllIdle(t.Context())
	for range 3 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	pids := make([]uint32, len(conns))
	for i, conn := range conns {
		pids[i] = conn.Conn().PgConn().PID()
		conn.Release()
	}
	killer, err := pgx.Connect(t.Context(), pool.Config().ConnString())
	require.NoError(t, err)
	_, err = killer.Exec(t.Context(), `SELECT pg_terminate_backend(p) FROM unnest($1::int[]) p`, pids)
	require.NoError(t, err)
	require.NoError(t, killer.Close(t.Context()))
	i, err := e.Get(within(t), id)
	require.NoError(t, err)
	require.Equal(t, id, i.ID)
}
