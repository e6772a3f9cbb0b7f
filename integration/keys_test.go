package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The session that holds the partition keys dies: the contexts of the steps under them end, and the
// steps run again without burning an attempt.
func TestStepsAreToldThatTheirPartitionKeyIsLost(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("keyed")
	causes := make(chan error, 10)
	gate := make(chan struct{})
	var running atomic.Int64
	c := config(t, m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		running.Add(1)
		select {
		case <-gate:
			return v.Done(v.Attempt + v.Crashes), nil
		case <-ctx.Done():
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	})))
	log := newJournal(t)
	c.Logger = log.logger()
	eng := start(t, c)
	ids := insertAll(t, eng, []fsm.Spec{m.New(0).PartitionKey("a"), m.New(0).PartitionKey("b"), m.New(0)})
	eventually(t, func() bool { return running.Load() == 3 })
	require.Equal(t, 1, query[int](t, c.Pool, `SELECT count(pg_terminate_backend(pid)) FROM (
		SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) held`))
	for range 2 {
		require.ErrorIs(t, <-causes, fsm.ErrKeyLost)
	}
	eventually(t, func() bool { return running.Load() == 5 })
	close(gate)
	allDone(t, eng, ids...)
	for _, id := range ids {
		require.JSONEq(t, "0", string(get(t, eng, id).Result))
	}
	log.says(t, "level=WARN", "hold partition keys")
}

// The order within a key holds over engines, priorities and queues that come and go.
func TestAKeyIsInOrderAcrossEngines(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("ordered")
	database := pgtest.Migrated(t)
	var next [5]atomic.Int64
	var inside [5]atomic.Int64
	def := func() fsm.Definition {
		return m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			key, turn := v.State%5, int64(v.State/5)
			if inside[key].Add(1) != 1 {
				return nil, fmt.Errorf("%s: two at once", v.PartitionKey)
			}
			defer inside[key].Add(-1)
			if !next[key].CompareAndSwap(turn, turn+1) {
				return nil, fmt.Errorf("%s: %d at the turn of %d", v.PartitionKey, turn, next[key].Load())
			}
			return v.Done(0), nil
		}))
	}
	var engines []*engine.Engine
	for range 3 {
		engines = append(engines, start(t, configOn(t, database, def())))
	}
	var specs []fsm.Spec
	for n := range 500 {
		specs = append(specs, m.New(n).PartitionKey(fmt.Sprint("key ", n%5)))
	}
	allDone(t, engines[0], insertAll(t, engines[0], specs)...)
}

// One transaction of the host holds one row, and another that of a parent: nothing else waits for
// them.
func TestAHostsTransactionDelaysOnlyTheRowsItHolds(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("held")
	gate := make(chan struct{})
	var running atomic.Int64
	c := config(t, m.Job(func(_ context.Context, n int) (int, error) {
		running.Add(1)
		<-gate
		return n, nil
	}))
	c.Queues["default"] = quick(50)
	log := newJournal(t)
	c.Logger = log.logger()
	eng := start(t, c)
	var specs []fsm.Spec
	for n := range 50 {
		specs = append(specs, m.New(n))
	}
	ids := insertAll(t, eng, specs)
	eventually(t, func() bool { return running.Load() == 50 })
	host, err := c.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = host.Exec(t.Context(), `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`, ids[0])
	require.NoError(t, err)
	close(gate)
	allDone(t, eng, ids[1:]...)
	require.Equal(t, fsm.StatusExecuting, get(t, eng, ids[0]).Status)
	eventually(t, func() bool { return len(log.lines("level=ERROR", "another session holds")) > 0 }, "nobody says who is to blame")
	require.NoError(t, host.Rollback(t.Context()))
	allDone(t, eng, ids[0])
	require.EqualValues(t, 50, running.Load())
}
