package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
)

// backends notes which server processes of a pool, and beside it, get claims and polls.
type backends struct {
	mu   sync.Mutex
	pids map[uint32]int // how many, by process
	last uint32
}

func (n *backends) on(c *pgxpool.Config) {
	n.pids = map[uint32]int{}
	c.ConnConfig.Tracer = n
}

func (n *backends) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool {
		return strings.HasPrefix(q.SQL, "WITH RECURSIVE level") || strings.HasPrefix(q.SQL, "WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)\nSELECT q.queue")
	}) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.last = conn.PgConn().PID()
		n.pids[n.last]++
	}
	return ctx
}

func (*backends) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*backends) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*backends) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*backends) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (n *backends) all() (pids []uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for pid := range n.pids {
		pids = append(pids, pid)
	}
	return pids
}

func (n *backends) newest() uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// preferring returns a bench whose store prefers a connection for claims and polls.
func preferring(t *testing.T, change ...func(*pgxpool.Config)) (bench, *backends) {
	t.Helper()
	seen := &backends{}
	b := newBench(t).beside(append(change, seen.on)...)
	b.exec(`SELECT 1`) // the pool has a connection
	b.Prefer()
	t.Cleanup(func() { b.Unprefer(context.Background()) })
	return b, seen
}

// inPool reports whether a server process belongs to a connection of the pool.
func (b bench) inPool(pid uint32) bool {
	b.t.Helper()
	for _, c := range b.pool.AcquireAllIdle(b.t.Context()) {
		defer c.Release()
		if c.Conn().PgConn().PID() == pid {
			return true
		}
	}
	return false
}

// Claims and polls have one connection beside the pool, so that Postgres plans them once.
func TestClaimsAndPollsPreferAConnection(t *testing.T) {
	b, seen := preferring(t)
	for range 3 {
		b.row("", "")
		require.Len(t, b.claim().Claims, 1)
		b.poll()
	}
	require.Len(t, seen.all(), 1)
	require.False(t, b.inPool(seen.newest()))

	b.Unprefer(t.Context())
	steady.Eventually(t, func() bool {
		return b.number(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, seen.all()[0]) == 0
	})
	b.poll()
	require.True(t, b.inPool(seen.newest()), "what comes later uses the pool")
}

// A claim that is held up keeps the connection. Other claims and polls use the pool meanwhile.
func TestAClaimThatKeepsTheConnectionHoldsUpNobody(t *testing.T) {
	b, seen := preferring(t)
	b.poll()
	stuck := b.begin()
	b.takeTurn(stuck, "default")
	id, elsewhere := b.row("", ""), b.row("queue", "'other'")
	claimed := make(chan []int64, 1)
	go func() { claimed <- claimedBy(b.claim(waits(time.Hour))) }()
	b.sleeps()
	require.Equal(t, []int64{elsewhere}, ids(b.claim(queue("other")).Claims))
	require.True(t, b.inPool(seen.newest()))
	b.poll()
	require.True(t, b.inPool(seen.newest()))
	require.NoError(t, stuck.Rollback(t.Context()))
	require.Equal(t, []int64{id}, <-claimed)
}

// The connection is made anew when it was lost, and when it is as old as the pool lets one become.
func TestThePreferredConnectionIsMadeAnew(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		b, seen := preferring(t)
		b.poll()
		before := seen.newest()
		b.exec(`SELECT pg_terminate_backend($1, 10000)`, before)
		steady.Eventually(t, func() bool {
			_, err := b.Poll(t.Context(), []string{"default"}, []string{"m/1"}, nil)
			return err == nil && seen.newest() != before && !b.inPool(seen.newest())
		})
	})
	t.Run("old", func(t *testing.T) {
		b, seen := preferring(t, func(c *pgxpool.Config) { c.MaxConnLifetime = 100 * time.Millisecond })
		steady.Eventually(t, func() bool {
			b.poll()
			return len(seen.all()) > 2 && !b.inPool(seen.newest())
		})
	})
}

// Without a connection beside the pool, the pool serves claims and polls.
func TestClaimsWithoutAPreferredConnection(t *testing.T) {
	t.Run("no more connections", func(t *testing.T) {
		var full atomic.Bool
		b, seen := preferring(t, func(c *pgxpool.Config) {
			c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
				if full.Load() {
					return errors.New("too many connections for this role")
				}
				return nil
			}
		})
		full.Store(true)
		for range 2 {
			b.row("", "")
			require.Len(t, b.claim().Claims, 1)
			require.True(t, b.inPool(seen.newest()))
		}
	})
	t.Run("none for others", func(t *testing.T) {
		b := newBench(t)
		role := "limited_" + strings.ReplaceAll(uuid.NewString(), "-", "_")
		b.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'app' CONNECTION LIMIT 2 IN ROLE ` + b.pool.Config().ConnConfig.User)
		t.Cleanup(func() {
			_, err := b.pool.Exec(context.WithoutCancel(t.Context()), `DROP ROLE `+role)
			require.NoError(t, err)
		})
		few := b.beside(func(c *pgxpool.Config) {
			c.ConnConfig.User, c.ConnConfig.Password = role, "app"
			c.MaxConns = 2
		})
		few.exec(`SELECT 1`)
		few.Prefer()
		sessions := func() int { return b.number(`SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, role) }

		// The heartbeat needs the connection.
		few.poll()
		require.Equal(t, 2, sessions())
		line := few.Line()
		require.NoError(t, line.Check(t.Context()))
		few.poll()
		require.Equal(t, 2, sessions(), "without it")
		require.NoError(t, line.Close(t.Context()))
		few.Unprefer(t.Context())
		steady.Eventually(t, func() bool { return sessions() == 1 })

		// So does the second outcome.
		few.Prefer()
		few.poll()
		few.begin()
		steady.Eventually(t, func() bool { // the server may need a moment to free the session
			_, err := few.Now(t.Context())
			return err == nil
		})
		few.Unprefer(t.Context())
	})
	t.Run("hooks", func(t *testing.T) {
		acquired := 0
		b, _ := preferring(t, func(c *pgxpool.Config) {
			c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { acquired++; return true, nil }
		})
		before := acquired
		b.poll()
		require.Greater(t, acquired, before, "a host may set what its triggers ask for")
	})
	t.Run("a full pool", func(t *testing.T) {
		b, _ := preferring(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
		b.poll()
		b.begin()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := b.Poll(ctx, []string{"default"}, []string{"m/1"}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded, "outcomes would not be committed either")
	})
	t.Run("closed", func(t *testing.T) {
		b, _ := preferring(t)
		b.poll()
		b.pool.Close()
		_, err := b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 1, Window: 1, Lease: lease})
		require.ErrorContains(t, err, "closed pool")
	})
}
