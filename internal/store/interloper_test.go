package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
)

// beside returns a bench on the same database, whose connections change configures.
func (b bench) beside(change ...func(*pgxpool.Config)) bench {
	b.t.Helper()
	pool := pgtest.Pool(b.t, b.pool.Config().ConnString(), change...)
	return benchOn(b.t, pool)
}

// interloper acts once, just before a pipeline with a given text is sent, and counts pipelines.
type interloper struct {
	text  string
	act   func()
	acted atomic.Bool
	sent  atomic.Int64
	ahead atomic.Int64 // how many of them were no more than what has to go ahead of others

	deadlocks atomic.Int64 // how many pipelines Postgres ended because of one
}

// on makes the connections of a pool tell the interloper what they send, and send nothing else.
func (i *interloper) on(c *pgxpool.Config) {
	c.ConnConfig.Tracer, c.ShouldPing = i, neverPing
}

// afresh forgets what has been counted so far.
func (i *interloper) afresh() {
	i.sent.Store(0)
	i.ahead.Store(0)
}

// attempts returns how many pipelines there were, each counted once: on a connection that has not
// met a pipeline's statements, its BEGIN and its settings are sent before the rest.
func (i *interloper) attempts() int64 { return i.sent.Load() - i.ahead.Load() }

func (i *interloper) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	i.sent.Add(1)
	queries := data.Batch.QueuedQueries
	if len(queries) == 2 && strings.HasPrefix(queries[0].SQL, "BEGIN") && strings.HasPrefix(queries[1].SQL, "SELECT set_config") {
		i.ahead.Add(1)
	}
	for _, q := range queries {
		if i.act != nil && strings.Contains(q.SQL, i.text) && i.acted.CompareAndSwap(false, true) {
			i.act()
		}
	}
	return ctx
}

func (*interloper) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (i *interloper) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	if pg, ok := errors.AsType[*pgconn.PgError](data.Err); ok && pg.Code == "40P01" {
		i.deadlocks.Add(1)
	}
}

func (i *interloper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	i.sent.Add(1)
	return ctx
}
func (*interloper) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// T80: an operator revives the instance between the two steps of the sweep.
func TestPruneSparesTheRevived(t *testing.T) {
	b := newBench(t)
	revived, parent := b.ended("failed", 40, "", ""), b.ended("failed", 30, "round", "1")
	child := b.ended("done", 40, "parent_id, parent_round", "$1, 1", parent)
	b.ended("failed", 30, "", "")
	between := &interloper{text: "DELETE FROM", act: func() {
		b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', finished_at = NULL, failure = NULL WHERE id = ANY($1)`,
			[]int64{revived, parent})
	}}
	sweeper := b.beside(func(c *pgxpool.Config) { c.ConnConfig.Tracer = between })
	require.Equal(t, store.Pruned{Instances: 1}, sweeper.prune(aDay))
	require.True(t, between.acted.Load())
	require.Equal(t, []int64{revived, parent, child}, b.left())
}

// A delivery takes one round trip, with any result.
func TestDeliverIsOneRoundTrip(t *testing.T) {
	b := newBench(t)
	count := &interloper{}
	sender := b.beside(count.on, func(c *pgxpool.Config) { c.MaxConns = 1 })
	id := b.keyed("k")
	for _, to := range []store.Address{byID(id), byKey("k"), byID(1 << 40), byKey("nobody's")} {
		_, _ = sender.Deliver(t.Context(), to, deduped("go", "evt"), cap10) // prepares the statements
		before := count.sent.Load()
		_, _ = sender.Deliver(t.Context(), to, deduped("go", "evt"), cap10)
		require.EqualValues(t, 1, count.sent.Load()-before, to)
	}
}

// cut is a connection that breaks once, when the answer to a COMMIT arrives.
type cut struct {
	net.Conn
	armed *atomic.Bool
}

func (c cut) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], []byte("COMMIT\x00")) && c.armed.CompareAndSwap(true, false) {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// cutting returns a bench whose next COMMIT gets no answer, and whose connections change
// configures.
func (b bench) cutting(change ...func(*pgxpool.Config)) bench {
	b.t.Helper()
	var armed atomic.Bool
	cutting := b.beside(func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return cut{conn, &armed}, err
		}
		for _, f := range change {
			f(c)
		}
	})
	armed.Store(true)
	return cutting
}

// T27, T28: the COMMIT gets no answer, and the error is ErrUnknown only if a repetition would not
// be safe.
func TestDeliverWithoutAnswer(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	_, err := b.cutting().Deliver(t.Context(), byID(id), named("go"), cap10)
	require.ErrorIs(t, err, store.ErrUnknown)
	require.Equal(t, 1, b.signals(id), "it had been delivered")

	sender := b.cutting()
	_, err = sender.Deliver(t.Context(), byID(id), deduped("go", "evt"), cap10)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrUnknown)
	require.Equal(t, store.FaultTransient, store.Classify(err))
	d, err := sender.Deliver(t.Context(), byID(id), deduped("go", "evt"), cap10)
	require.NoError(t, err)
	require.True(t, d.Duplicate)
	require.Equal(t, 2, b.signals(id))
}
