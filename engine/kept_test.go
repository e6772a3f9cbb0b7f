package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

type exported struct{ Pages int }

// A signal comes before its instance, which publishes what it has come to, and goes with its Done.
// An engine that never starts keeps signals, too, in transactions of the host as well.
func TestKeptSignalProgressAndRetention(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	m := fsm.Declare[int, string]("export", fsm.Retain(fsm.Retention{Done: fsm.RetainNone}))
	published := make(chan error, 1)
	e := open(t, pool, rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{m.Define(
			fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				if err := v.Publish(ctx, exported{Pages: v.State}); err != nil {
					return nil, err
				}
				published <- v.Publish(ctx, strings.Repeat("x", fsm.MaxProgressBytes))
				return v.Await("paid", v.State, paid), nil
			}),
			fsm.Step("paid", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				if n, ok, err := paid.First(v); err != nil || !ok || n < 0 {
					return v.Await("paid", v.State, paid), err
				}
				return v.Done("paid"), nil
			}))}
	})
	client := open(t, pool)
	key := fsm.Key("export:1")
	d, err := client.Signal(t.Context(), key, paid.With(1).DedupKey("d").KeepFor(time.Hour))
	require.NoError(t, err)
	require.Equal(t, engine.Delivery{Kept: true}, d)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	d, err = client.WithPgx(tx).Signal(t.Context(), key, paid.With(1).DedupKey("d").KeepFor(time.Hour))
	require.NoError(t, err)
	require.Equal(t, engine.Delivery{Kept: true, Duplicate: true}, d)
	require.NoError(t, tx.Commit(t.Context()))
	for field, bad := range map[string]fsm.Message{"keep_for": paid.With(1).KeepFor(0), "100 years": paid.With(1).KeepFor(fsm.MaxDelay + 1)} {
		_, err := client.Signal(t.Context(), key, bad)
		require.ErrorContains(t, err, field)
	}
	_, err = client.Signal(t.Context(), key, paid.With(1))
	require.ErrorIs(t, err, engine.ErrNoTarget)

	require.NoError(t, e.Start(t.Context()), "which notes that signals are kept")
	defer func() { require.NoError(t, e.Stop(context.Background())) }()
	id, err := e.Insert(t.Context(), m.New(7).Key(key))
	require.NoError(t, err)
	require.ErrorIs(t, <-published, fsm.ErrTooLarge)
	_, err = e.Wait(within(t), id)
	require.ErrorIs(t, err, engine.ErrNotFound, "the row has gone with its Done")

	stays, err := e.Insert(t.Context(), m.New(8).Key(key).Retain(fsm.Retention{Done: time.Hour}))
	require.NoError(t, err)
	require.ErrorIs(t, <-published, fsm.ErrTooLarge)
	i, err := m.WaitParked(within(t), client, stays, -1)
	require.NoError(t, err)
	progress, ok, err := fsm.ProgressOf[exported](client, i)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, exported{Pages: 8}, progress)
	_, err = e.Signal(t.Context(), key, paid.With(1).KeepFor(time.Hour))
	require.NoError(t, err)
	ended, err := e.Wait(within(t), stays)
	require.NoError(t, err)
	require.JSONEq(t, `{"Pages": 8}`, string(ended.Progress))
	_, ok, err = fsm.ProgressOf[exported](client, fsm.RawInstance{})
	require.NoError(t, err)
	require.False(t, ok)
	_, _, err = fsm.ProgressOf[int](client, ended)
	var wrong *fsm.DecodeError
	require.ErrorAs(t, err, &wrong)
}

// An insert that does not know that signals are kept, of a process that keeps none or in another
// language, leaves them. The polls of any worker hand them over, also where none collects.
func TestWorkersHandKeptSignalsOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	m := fsm.Declare[int, string]("late")
	worker := open(t, pool, func(c *engine.Config) {
		c.NoGC, c.Queues = true, map[string]engine.Queue{"default": {}}
		c.Machines = []fsm.Definition{m.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				return v.Await("paid", v.State, paid), nil
			}),
			fsm.Step("paid", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
				return v.Done("paid"), nil
			}))}
	})
	ignorant, keeper := open(t, pool), open(t, pool)
	for _, key := range []fsm.Key{"late:1", "late:2"} {
		d, err := keeper.Signal(t.Context(), key, paid.With(1).KeepFor(time.Hour))
		require.NoError(t, err)
		require.True(t, d.Kept)
	}
	first, err := ignorant.Insert(t.Context(), m.New(7).Key("late:1"))
	require.NoError(t, err)
	var second fsm.ID
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT id FROM gendurable.gen_durable_insert('late', step => 'start', state => '7',
		correlation_key => 'late:2')`).Scan(&second))
	unread, err := ignorant.Ent().Signal.Query().Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, unread, "they have not taken them")
	require.NoError(t, worker.Start(t.Context()))
	defer func() { require.NoError(t, worker.Stop(context.Background())) }()
	for _, id := range []fsm.ID{first, second} {
		i, err := worker.Wait(within(t), id)
		require.NoError(t, err)
		require.JSONEq(t, `"paid"`, string(i.Result))
	}
	left, err := keeper.Ent().KeptSignal.Query().Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
}
