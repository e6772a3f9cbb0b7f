package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

func TestVersionsRunSideBySide(t *testing.T) {
	t.Parallel()
	type old struct{ Cents int }
	type renamed struct{ Amount string }
	one := fsm.Declare[old, string]("bill")
	two := fsm.Declare[renamed, string]("bill", fsm.Version(2), fsm.Initial("begin"))
	eng := start(t, config(t,
		one.Job(func(_ context.Context, b old) (string, error) { return fmt.Sprint("one: ", b.Cents), nil }),
		two.Define(fsm.Step("begin", func(_ context.Context, v *fsm.Visit[renamed, string]) (fsm.Outcome, error) {
			return v.Done("two: " + v.State.Amount), nil
		}))))
	a, b := insert(t, eng, one.New(old{100})), insert(t, eng, two.New(renamed{"1.00"}))
	require.Equal(t, "one: 100", result(t, eng, one, a))
	require.Equal(t, "two: 1.00", result(t, eng, two, b))
	_, err := one.Wait(t.Context(), eng, b)
	require.ErrorAs(t, err, new(*fsm.VersionError), "its result might be of another type")
	i, err := two.Get(t.Context(), eng, a)
	require.Equal(t, &fsm.VersionError{ID: a, Machine: "bill", Field: "state", Got: 1, Want: 2}, err)
	require.Equal(t, fsm.StatusDone, i.Status)
}

func TestEnginesOnDifferentDatabasesDoNotKnowOfEachOther(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[string, string]("where")
	engines := map[string]*engine.Engine{}
	for _, name := range []string{"a", "b", "c"} {
		engines[name] = start(t, config(t, m.Job(func(_ context.Context, s string) (string, error) { return s + " in " + name, nil })))
	}
	for name, eng := range engines {
		var specs []fsm.Spec
		for n := range tier.Pick(12, 30) {
			specs = append(specs, m.New(strconv.Itoa(n)).Key(fsm.Key(fmt.Sprint("key ", n))).PartitionKey("everywhere"))
		}
		for n, id := range insertAll(t, eng, specs) {
			require.Equal(t, fmt.Sprint(n, " in ", name), result(t, eng, m, id))
		}
	}
}

func TestGetOrInsertFindsWhatAnotherHasInserted(t *testing.T) {
	t.Parallel()
	c := config(t, plainJob())
	c.Queues = map[string]engine.Queue{"idle": {}} // so that it lives on
	first, second := start(t, c), client(t, c.Pool)
	var fresh atomic.Int64
	ids := make([]fsm.ID, 20)
	var callers sync.WaitGroup
	for n := range ids {
		callers.Go(func() {
			got, err := []*engine.Engine{first, second}[n%2].GetOrInsert(t.Context(), plainMachine.New(plain{7}).KeyFromState())
			if err == nil && !got.Duplicate {
				fresh.Add(1)
			}
			ids[n] = got.ID
		})
	}
	callers.Wait()
	require.EqualValues(t, 1, fresh.Load())
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	_, err := first.Insert(t.Context(), plainMachine.New(plain{7}).KeyFromState())
	var occupied *engine.DuplicateError
	require.ErrorAs(t, err, &occupied)
	require.Equal(t, ids[0], occupied.Occupant)
}

// Another process cannot notify the waiters in this one of the end of an instance: one poll for all
// of them finds it.
func TestWaitersFindWhatEndsInAnotherProcess(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	spawn(t, role{URL: s.url})
	var specs []fsm.Spec
	for n := range 30 {
		specs = append(specs, deedMachine.New(deed{Name: strconv.Itoa(n), Gate: strconv.Itoa(n % 3)}))
	}
	ids := insertAll(t, s.eng, specs)
	results := make(chan error, len(ids))
	for _, id := range ids {
		go func() {
			_, err := deedMachine.Wait(t.Context(), s.eng, id)
			results <- err
		}()
	}
	for gate := range 3 {
		s.open(strconv.Itoa(gate))
	}
	for range ids {
		require.NoError(t, <-results)
	}
}

func TestRunAheadChangesNothingButTheSpeed(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[[]int64, []int64]("sequence")
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[[]int64, []int64]) (fsm.Outcome, error) {
		if len(v.State) == 30 {
			return v.Done(v.State), nil
		}
		return v.Next("start", append(v.State, v.Visit)), nil
	}))
	var results [][]int64
	var visits []int64
	for _, steps := range []int{1, 7, 100} {
		c, claims := picks(config(t, def))
		c.RunAheadSteps = steps
		eng := start(t, c)
		id := insert(t, eng, m.New(nil).PartitionKey("k"))
		results = append(results, result(t, eng, m, id))
		visits = append(visits, get(t, eng, id).Visit)
		if steps == 1 {
			require.GreaterOrEqual(t, claims.Load(), int64(31))
		}
	}
	require.Equal(t, results[0], results[1])
	require.Equal(t, results[0], results[2])
	require.Equal(t, []int64{30, 30, 30}, visits)
}

// A drain goes in this order: claims whose step has not started go back at once, running steps may
// finish and are committed, and a restart finds all of it.
func TestStopGivesBackWhatItHasNotStartedAndCommitsWhatRuns(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("long")
	gate := make(chan struct{})
	var running, again atomic.Int64
	c := config(t, m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		running.Add(1)
		select {
		case <-gate:
			return v.Next("end", v.State), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}), fsm.Step("end", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		again.Add(1)
		return v.Done(v.State), nil
	})))
	released := make(chan int, 1)
	c.Queues = map[string]engine.Queue{"default": {Concurrency: 4, Buffer: 6, PollMin: 20 * time.Millisecond}}
	c.Hooks = []engine.Hooks{{Drain: func(_ context.Context, e engine.DrainEvent) { released <- e.Released }}}
	eng, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	var specs []fsm.Spec
	for n := range 10 {
		specs = append(specs, m.New(n))
	}
	ids := insertAll(t, eng, specs)
	eventually(t, func() bool {
		return running.Load() == 4 && query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing'`) == 10
	})
	stopped := make(chan error, 1)
	go func() { stopped <- stop(eng) }()
	eventually(t, func() bool { // while the four still run
		return query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND attempt = 0`) == 6
	})
	close(gate)
	require.NoError(t, <-stopped)
	require.Equal(t, 6, <-released)
	require.Zero(t, again.Load(), "it ran ahead while it drained")
	require.Equal(t, 4, query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND step = 'end'`))
	require.Zero(t, query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE locked_by IS NOT NULL`))
	c.Hooks = nil
	allDone(t, start(t, c), ids...)
	require.EqualValues(t, 10, running.Load())
}

// The test is not parallel, since it would take other tests' goroutines for leaks.
func TestStopLeavesNoGoroutineAndNoConnection(t *testing.T) {
	m, defs := everything()
	database := pgtest.Migrated(t)
	outside := pgtest.Pool(t, database)
	require.NoError(t, outside.Ping(t.Context()))
	before := goleak.IgnoreCurrent()
	for range 2 {
		c := configOn(t, database, defs...)
		c.Logger = newJournal(t).logger()
		eng, err := engine.New(c)
		require.NoError(t, err)
		require.NoError(t, eng.Start(t.Context()))
		var specs []fsm.Spec
		for n := range 50 {
			specs = append(specs, m.New(n).PartitionKey(strconv.Itoa(n%10)))
		}
		ids := insertAll(t, eng, specs)
		allDone(t, eng, ids[:25]...)
		waiting := make(chan error, 1)
		parked := insert(t, eng, plainMachine.New(plain{}))
		go func() {
			_, err := eng.Wait(t.Context(), parked)
			waiting <- err
		}()
		require.NoError(t, stop(eng))
		require.ErrorIs(t, <-waiting, engine.ErrStopped)
		c.Pool.Close()
	}
	require.NoError(t, goleak.Find(before))
	eventually(t, func() bool {
		return query[int](t, outside, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) == 0
	})
}
