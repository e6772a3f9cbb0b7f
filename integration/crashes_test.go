package integration

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// short is a lease that a test can wait for. Under the race detector a process may need seconds for
// a heartbeat.
func short() time.Duration { return tier.Pick(3*time.Second, 6*time.Second) }

func TestProcessesShareTheWorkAndNothingRunsTwice(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	spawn(t, role{URL: s.url})
	spawn(t, role{URL: s.url})

	// Both processes are busy before either may go on, so that neither can have done all of it.
	var specs []fsm.Spec
	for n := range 20 {
		specs = append(specs, deedMachine.New(deed{Name: fmt.Sprint("gated ", n), Gate: "go"}))
	}
	ids := insertAll(t, s.eng, specs)
	s.until(20)
	require.Equal(t, 2, query[int](t, s.pool, `SELECT count(DISTINCT process) FROM deeds`))
	specs = nil
	many := tier.Pick(60, 200)
	for n := range many {
		specs = append(specs, deedMachine.New(deed{Name: fmt.Sprint("plain ", n)}))
		specs = append(specs, deedMachine.New(deed{Name: fmt.Sprint("keyed ", n)}).PartitionKey(fmt.Sprint("key ", n%7)))
	}
	ids = append(ids, insertAll(t, s.eng, specs)...)
	crowd := insert(t, s.eng, crowdMachine.New(deed{Name: "crowd", Many: many / 2}))
	s.open("go")
	allDone(t, s.eng, append(ids, crowd)...)

	require.Equal(t, 20+2*many+many/2+1, s.count("true"))
	require.Equal(t, 20+2*many+many/2+1, query[int](t, s.pool, `SELECT count(DISTINCT name) FROM deeds`), "a step ran twice")
	require.Len(t, s.executions(crowd), 1, "the crowd joined more than once")
	require.JSONEq(t, strconv.Itoa(many/2), string(get(t, s.eng, crowd).Result))
	s.noOverlap()
	s.noneHandled()
}

func TestAKilledProcessesStepsRunAgainElsewhere(t *testing.T) {
	t.Parallel()
	watchdog := steady.Watch(t)
	s := newScene(t, pgtest.Migrated(t))
	first := spawn(t, role{URL: s.url, Lease: short()})
	id := insert(t, s.eng, deedMachine.New(deed{Name: "deed", Gate: "go"}))
	keyed := insert(t, s.eng, deedMachine.New(deed{Name: "keyed", Gate: "go"}).PartitionKey("k"))
	s.until(2)
	first.kill()
	second := spawn(t, role{URL: s.url}) // only the lease of who is gone has to be waited for
	s.until(4)
	s.open("go")
	allDone(t, s.eng, id, keyed)
	for _, id := range []fsm.ID{id, keyed} {
		runs := s.executions(id)
		if len(runs) != 2 { // a heartbeat that comes too late gives a claim back
			watchdog.SkipIfStood(short() / 3)
		}
		require.Len(t, runs, 2)
		before, after := runs[0], runs[1]
		require.Equal(t, []int{first.pid(), second.pid()}, []int{before.Process, after.Process})
		require.Equal(t, []int{0, 0, 1, 1}, []int{before.Attempt, before.Crashes, after.Attempt, after.Crashes})
		require.Equal(t, before.Idempotency, after.Idempotency)
		require.Greater(t, after.Token, before.Token)
	}
	s.noneHandled()
	second.log.says(t, "level=WARN", "reaped")
}

// The parent's process lives: it reaps the mortal instances, and joins them.
func TestAStepThatKillsItsProcessIsStoppedByTheCrashLimit(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	parent := insert(t, s.eng, crowdMachine.New(deed{Name: "parent", Many: 1, Dies: true}))
	undertaker := spawn(t, role{URL: s.url, Lease: short()})
	for range mortalLimit + 1 {
		<-spawn(t, role{URL: s.url, Lease: short(), Queue: mortalMachine.New(deed{}).Options().Queue}).exited
	}
	allDone(t, s.eng, parent)
	require.JSONEq(t, "1", string(get(t, s.eng, parent).Result))
	runs := query[int](t, s.pool, `SELECT count(*) FROM deeds WHERE name = 'parent/0'`)
	require.Equal(t, mortalLimit+1, runs)
	child := get(t, s.eng, query[fsm.ID](t, s.pool, `SELECT id FROM gendurable.gen_durable WHERE parent_id = $1`, parent))
	require.Equal(t, fsm.StatusFailed, child.Status)
	require.Equal(t, fsm.FailureCrashes, child.Failure)
	require.Contains(t, child.LastError, "crash limit")
	s.noneHandled()
	undertaker.log.says(t, "level=WARN", "reaped")
}

func TestAStalledProcessesLateOutcomeChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	stalled := spawn(t, role{URL: s.url, Lease: short()})
	id := insert(t, s.eng, deedMachine.New(deed{Name: "deed", Gate: "go", Deaf: true}))
	s.until(1)
	stalled.freeze()
	other := spawn(t, role{URL: s.url, Lease: short()})
	s.until(2)
	s.open("go")
	allDone(t, s.eng, id)
	before := row(t, s, id)
	stalled.thaw()
	eventually(t, func() bool { return len(stalled.log.lines("too late")) > 0 })
	require.Equal(t, before, row(t, s, id))
	require.JSONEq(t, strconv.Itoa(other.pid()), string(get(t, s.eng, id).Result))
	require.Len(t, s.executions(id), 2)
	require.Equal(t, "<nil>", stalled.terminate())
}

// row returns all columns of an instance.
func row(t *testing.T, s *scene, id fsm.ID) string {
	t.Helper()
	return string(query[json.RawMessage](t, s.pool, `SELECT to_jsonb(g) FROM gendurable.gen_durable g WHERE id = $1`, id))
}

// The lease alone cannot keep the two apart: the stalled step goes on at its line.
func TestAStalledProcessKeepsItsPartitionKey(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	stalled := spawn(t, role{URL: s.url, Lease: short()})
	id := insert(t, s.eng, deedMachine.New(deed{Name: "deed", Gate: "go", Deaf: true}).PartitionKey("k"))
	s.until(1)
	stalled.freeze()
	spawn(t, role{URL: s.url, Lease: short()})
	eventually(t, func() bool {
		i := get(t, s.eng, id)
		return i.Crashes == 1 && i.Status == fsm.StatusExecuting
	}, "nobody claimed it anew")
	require.Equal(t, 1, s.count("true"))
	// A claim that waits for its key does not delay others.
	allDone(t, s.eng, insert(t, s.eng, deedMachine.New(deed{Name: "other"}).PartitionKey("l")))
	require.Equal(t, 1, s.count("name = 'deed'"))
	s.open("go")
	stalled.thaw()
	allDone(t, s.eng, id)
	s.noOverlap()
	s.noneHandled()
	require.Len(t, s.executions(id), 2)
}

func TestTerminationBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	many := tier.Pick(40, 100)
	// With the default lease of a minute, only claims that were given back can run elsewhere within
	// this test.
	first := spawn(t, role{URL: s.url, Concurrency: many, DrainTimeout: 200 * time.Millisecond, DrainGrace: 20 * time.Second})
	var specs []fsm.Spec
	for n := range many {
		specs = append(specs, deedMachine.New(deed{Name: strconv.Itoa(n), Gate: "go"}))
	}
	for n := range 10 { // never started
		specs = append(specs, deedMachine.New(deed{Name: fmt.Sprint("later ", n), Gate: "go"}).Priority(1))
	}
	ids := insertAll(t, s.eng, specs)
	s.until(many)
	require.Equal(t, "<nil>", first.terminate())
	require.Equal(t, len(ids), query[int](t, s.pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable'
		AND attempt = 0 AND crashes = 0 AND visit = 0 AND locked_by IS NULL AND lease_expires_at IS NULL AND last_error IS NULL`))
	s.noneHandled()
	s.open("go")
	spawn(t, role{URL: s.url, Concurrency: many})
	allDone(t, s.eng, ids...)
	require.Zero(t, s.count("attempt > 0 OR crashes > 0"))
}

func TestTerminationLeavesADeafStepToItsLease(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	first := spawn(t, role{URL: s.url, Lease: short(), DrainTimeout: 100 * time.Millisecond, DrainGrace: 100 * time.Millisecond})
	deaf := insert(t, s.eng, deedMachine.New(deed{Name: "deaf", Gate: "go", Deaf: true}))
	s.until(1)
	stopped := first.terminate()
	require.Contains(t, stopped, "1 steps did not end")
	require.Contains(t, stopped, fmt.Sprintf("%d (deed)", deaf), "it does not say which")
	require.Equal(t, fsm.StatusExecuting, get(t, s.eng, deaf).Status)
	spawn(t, role{URL: s.url, Lease: short()})
	s.until(2)
	s.open("go")
	allDone(t, s.eng, deaf)
	require.Equal(t, 1, s.executions(deaf)[1].Crashes)
	s.noneHandled()
}
