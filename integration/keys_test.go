package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// livenessLocks are the sessions in this database that hold the liveness lock of a worker.
const livenessLocks = `SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// The session with the liveness lock dies: no step that runs under a key takes notice, and the lock
// is had again on another connection.
func TestALostConnectionCostsNoStepUnderAKey(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("keyed")
	gate := make(chan struct{})
	var running atomic.Int64
	c := hasty(config(t, m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		running.Add(1)
		select {
		case <-gate:
			return v.Done(v.Attempt + v.Crashes), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))))
	c.Lease = engine.DefaultLease // no lease is over while this goes on: only the lost connection could cost a step
	eng := start(t, c)
	ids := insertAll(t, eng, []fsm.Spec{m.New(0).PartitionKey("a"), m.New(0).PartitionKey("b"), m.New(0)})
	eventually(t, func() bool { return running.Load() >= 3 })
	holder := func() int { return query[int](t, c.Pool, `SELECT coalesce(max(pid), 0) FROM (`+livenessLocks+`) held`) }
	for range 3 {
		before := holder()
		require.True(t, query[bool](t, c.Pool, `SELECT pg_terminate_backend(pid) FROM (`+livenessLocks+`) held`))
		eventually(t, func() bool { now := holder(); return now > 0 && now != before }, "the lock is lost for good")
	}
	ids = append(ids, insert(t, eng, m.New(0).PartitionKey("c")))
	eventually(t, func() bool { return running.Load() >= 4 })
	close(gate)
	allDone(t, eng, ids...)
	require.EqualValues(t, 4, running.Load(), "none was begun again")
	for _, id := range ids {
		require.JSONEq(t, "0", string(get(t, eng, id).Result))
	}
}

// An operator cancels an instance whose step does not listen: the next of its key, which another
// process claims, begins when that step has ended.
func TestACancelledStepKeepsItsPartitionKey(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	first := spawn(t, role{URL: s.url, Lease: short()})
	cancelled := insert(t, s.eng, deedMachine.New(deed{Name: "cancelled", Gate: "go", Deaf: true}).PartitionKey("k"))
	s.until(1)
	_, err := s.eng.Admin().Cancel(t.Context(), cancelled)
	require.NoError(t, err)
	first.freeze() // else it would claim the next itself
	spawn(t, role{URL: s.url, Lease: short()})
	next := insert(t, s.eng, deedMachine.New(deed{Name: "next"}).PartitionKey("k"))
	eventuallyStatus(t, s.eng, next, fsm.StatusExecuting)
	allDone(t, s.eng, insert(t, s.eng, deedMachine.New(deed{Name: "other"}).PartitionKey("l")))
	require.Zero(t, s.count("name = 'next'"))
	s.open("go")
	first.thaw()
	allDone(t, s.eng, next)
	s.noOverlap()
	eventually(t, func() bool { return query[int](t, s.pool, `SELECT count(*) FROM gendurable.lost_claims`) == 0 })
}

// Two faults at once: a process stands still under a key, and its connection is ended. It cannot be
// told from one that is gone, so the key goes on when its lease is over.
func TestAStalledProcessWhoseConnectionIsLostCountsAsGone(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	stalled := spawn(t, role{URL: s.url, Lease: short()})
	id := insert(t, s.eng, deedMachine.New(deed{Name: "deed", Gate: "go", Deaf: true}).PartitionKey("k"))
	s.until(1)
	stalled.freeze()
	require.True(t, query[bool](t, s.pool, `SELECT pg_terminate_backend(pid) FROM (`+livenessLocks+`) held`))
	other := spawn(t, role{URL: s.url, Lease: short()})
	s.until(2)
	s.open("go")
	allDone(t, s.eng, id)
	stalled.thaw()
	eventually(t, func() bool { return len(stalled.log.lines("too late")) > 0 })
	require.JSONEq(t, strconv.Itoa(other.pid()), string(get(t, s.eng, id).Result))
	eventually(t, func() bool { return query[int](t, s.pool, `SELECT count(*) FROM gendurable.lost_claims`) == 0 })
}

// A process that is killed keeps nothing of its keys, however many they were: their next steps
// begin when its leases are over.
func TestAKilledProcessKeepsNoPartitionKey(t *testing.T) {
	t.Parallel()
	keys := tier.Pick(60, 300)
	s := newScene(t, pgtest.Migrated(t))
	killed := spawn(t, role{URL: s.url, Lease: short(), Concurrency: keys})
	var specs []fsm.Spec
	for n := range 2 * keys {
		specs = append(specs, deedMachine.New(deed{Name: fmt.Sprint(n), Gate: "go"}).PartitionKey(fmt.Sprint("key ", n%keys)))
	}
	ids := insertAll(t, s.eng, specs)
	s.until(keys)
	killed.kill()
	s.open("go")
	spawn(t, role{URL: s.url, Lease: short(), Concurrency: keys})
	allDone(t, s.eng, ids...)
	require.Zero(t, query[int](t, s.pool, `SELECT count(*) FROM gendurable.lost_claims`))
	require.Equal(t, 3*keys, s.count("true"))
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
	for n := range tier.Pick(150, 500) {
		specs = append(specs, m.New(n).PartitionKey(fmt.Sprint("key ", n%5)))
	}
	allDone(t, engines[0], insertAll(t, engines[0], specs)...)
}

// One transaction of the host holds one row, and another the row of a parent: nothing else waits
// for them.
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
