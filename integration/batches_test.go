package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

// squadMachine does its deeds in batches.
var squadMachine = fsm.Declare[deed, int]("squad")

const squadSize = 8

func (d deeds) squad() fsm.Definition {
	return squadMachine.Define(fsm.BatchStep("start", d.doTogether, fsm.BatchOf(squadSize), fsm.Within(200*time.Millisecond))).
		Retry(fsm.RetryPolicy{})
}

// doTogether leaves the trace of each deed, and one of the call.
func (d deeds) doTogether(ctx context.Context, visits []*fsm.Visit[deed, int]) ([]fsm.Outcome, error) {
	if _, err := d.pool.Exec(ctx, `INSERT INTO calls VALUES ($1, $2, $3)`, os.Getpid(), len(visits), visits[0].Attempt); err != nil {
		return nil, err
	}
	traces := make([]int64, len(visits))
	for i, v := range visits {
		var err error
		if traces[i], err = d.begin(ctx, v.Info, v.State.Name); err != nil {
			return nil, err
		}
	}
	if err := d.pass(ctx, visits[0].State.Gate); err != nil {
		return nil, err
	}
	if _, err := d.pool.Exec(ctx, `UPDATE deeds SET ended = clock_timestamp() WHERE id = ANY($1)`, traces); err != nil {
		return nil, err
	}
	outcomes := make([]fsm.Outcome, len(visits))
	for i, v := range visits {
		outcomes[i] = v.Done(os.Getpid())
	}
	return outcomes, nil
}

// A process is killed in the middle of its batches: each instance runs again elsewhere, in a
// smaller batch, with its crash counted, and under its partition key alone.
func TestAKilledProcessesBatchesRunAgainElsewhere(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.Migrated(t))
	first := spawn(t, role{URL: s.url, Lease: short()})
	var specs []fsm.Spec
	for n := range 18 {
		specs = append(specs, squadMachine.New(deed{Name: fmt.Sprint("free ", n), Gate: "go"}))
	}
	for n := range 2 {
		specs = append(specs, squadMachine.New(deed{Name: fmt.Sprint("keyed ", n), Gate: "go"}).PartitionKey(fmt.Sprint("key ", n)))
	}
	ids := insertAll(t, s.eng, specs)
	s.until(20)
	first.kill()
	second := spawn(t, role{URL: s.url, Lease: short(), Concurrency: 20})
	s.until(40)
	s.open("go")
	allDone(t, s.eng, ids...)
	for _, id := range ids {
		runs := s.executions(id)
		require.Len(t, runs, 2)
		before, after := runs[0], runs[1]
		require.Equal(t, []int{first.pid(), second.pid()}, []int{before.Process, after.Process})
		require.Equal(t, []int{0, 0, 1, 1}, []int{before.Attempt, before.Crashes, after.Attempt, after.Crashes})
		require.Equal(t, before.Idempotency, after.Idempotency)
		require.Greater(t, after.Token, before.Token)
	}
	sizes := func(attempt int) (most, sum int) {
		return query[int](t, s.pool, `SELECT max(size) FROM calls WHERE attempt = $1`, attempt),
			query[int](t, s.pool, `SELECT sum(size) FROM calls WHERE attempt = $1`, attempt)
	}
	most, sum := sizes(0)
	require.Equal(t, 20, sum)
	require.LessOrEqual(t, most, squadSize)
	require.Greater(t, most, squadSize/4)
	most, sum = sizes(1)
	require.Equal(t, 20, sum)
	require.LessOrEqual(t, most, squadSize/4)
	second.log.says(t, "level=WARN", "reaped")
}

// A stop lets the calls that run finish, and gives back what is only collected, at once and
// unchanged.
func TestAStopInTheMiddleOfABatch(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, string]("slow")
	running, release := make(chan int, 10), make(chan struct{})
	def := m.Define(fsm.BatchStep("start", func(_ context.Context, visits []*fsm.Visit[int, string]) ([]fsm.Outcome, error) {
		running <- len(visits)
		<-release
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			outcomes[i] = v.Done("fine")
		}
		return outcomes, nil
	}, fsm.BatchOf(3), fsm.Within(fsm.MaxBatchWait)))
	c := config(t, def)
	reader := client(t, c.Pool)
	eng, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	ids := insertAll(t, eng, []fsm.Spec{m.New(1), m.New(2), m.New(3)})
	require.Equal(t, 3, <-running)
	later := insertAll(t, eng, []fsm.Spec{m.New(4), m.New(5)})
	eventually(t, func() bool { return eng.Activity().Queues[0].Collected == 2 })
	stopped := make(chan error, 1)
	go func() { stopped <- stop(eng) }()
	for _, id := range later { // while the call still runs
		eventuallyStatus(t, reader, id, fsm.StatusRunnable)
	}
	close(release)
	require.NoError(t, <-stopped)
	allDone(t, reader, ids...)
	for _, id := range later {
		i := get(t, reader, id)
		require.Equal(t, fsm.StatusRunnable, i.Status)
		require.Zero(t, i.Attempt+i.Crashes)
	}
}

// One call whose instances get outcomes of every kind, one of which is cancelled meanwhile: each
// goes its own way.
func TestInstancesOfABatchGoTheirOwnWays(t *testing.T) {
	t.Parallel()
	type kind = string
	m, call := fsm.Declare[kind, string]("mixed"), fsm.DeclareSignal[string]("call")
	child := fsm.Declare[kind, string]("child")
	var mu sync.Mutex
	var calls [][]kind
	running, release := make(chan struct{}, 100), make(chan struct{})
	write := func(v *fsm.Visit[kind, string], fail bool) fsm.Outcome {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO written VALUES ($1)`, v.State); err != nil || fail {
				return nil, errors.Join(err, errors.New("undone"))
			}
			return v.Done("written"), nil
		})
	}
	together := func(ctx context.Context, visits []*fsm.Visit[kind, string]) ([]fsm.Outcome, error) {
		if engine.FromContext(ctx) == nil {
			return nil, errors.New("no engine in the context")
		}
		var kinds []kind
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			kinds = append(kinds, v.State)
			switch again := v.Attempt > 0; {
			case v.State == "next":
				outcomes[i] = v.Next("after", v.State)
			case v.State == "await":
				outcomes[i] = v.Await("after", v.State, call)
			case v.State == "children":
				outcomes[i] = v.ScheduleChildren("after", v.State, child.New("a"), child.New("b"))
			case v.State == "written":
				outcomes[i] = write(v, false)
			case v.State == "undone":
				outcomes[i] = write(v, !again)
			case v.State == "refused" && !again:
				outcomes[i] = v.Done("forbidden")
			case v.State == "failed" && !again:
				outcomes[i] = v.Raise(errors.New("a failure of its own"))
			case v.State == "absent" && !again: // no outcome
			default:
				outcomes[i] = v.Done("done")
			}
		}
		mu.Lock()
		calls = append(calls, kinds)
		mu.Unlock()
		running <- struct{}{}
		<-release
		return outcomes, nil
	}
	def := m.Define(
		fsm.BatchStep("start", together, fsm.BatchOf(11), fsm.Within(2*time.Second)),
		fsm.Step("after", func(_ context.Context, v *fsm.Visit[kind, string]) (fsm.Outcome, error) { return v.Done("after"), nil }),
	).Retry(fsm.RetryPolicy{Base: time.Millisecond})
	c := config(t, def, child.Job(func(context.Context, kind) (string, error) { return "", nil }))
	execute(t, c.Pool, `CREATE TABLE written (kind text)`)
	refuse(t, c.Pool, `NEW.result = '"forbidden"'`)
	reader := client(t, c.Pool)
	kinds := []kind{"plain", "next", "await", "children", "written", "undone", "refused", "failed", "absent", "cancelled"}
	specs := []fsm.Spec{m.New("key 1").PartitionKey("k"), m.New("key 2").PartitionKey("k")}
	for _, k := range kinds {
		specs = append(specs, m.New(k))
	}
	ids := insertAll(t, reader, specs)
	watchdog := steady.Watch(t)
	eng := start(t, c)
	<-running
	id := map[kind]fsm.ID{}
	for i, k := range kinds {
		id[k] = ids[i+2]
	}
	_, err := eng.Admin().Cancel(t.Context(), id["cancelled"])
	require.NoError(t, err)
	close(release)
	_, err = eng.Signal(t.Context(), id["await"], call.With(""))
	require.NoError(t, err)
	for k, want := range map[kind]string{"plain": "done", "next": "after", "await": "after", "children": "after", "written": "written", "undone": "written",
		"refused": "done", "failed": "done", "absent": "done"} {
		require.Equal(t, want, result(t, reader, m, id[k]), k)
	}
	allDone(t, reader, ids[:2]...)
	require.Equal(t, fsm.FailureCancelled, ended(t, reader, id["cancelled"]).Failure)
	require.Equal(t, 2, query[int](t, c.Pool, `SELECT count(*) FROM written`), "what its transaction undid was not written")
	for k, text := range map[kind]string{"undone": "undone", "refused": "outcome: commit", "failed": "a failure of its own", "absent": ": nil, without an error"} {
		attempts, err := reader.Errors(t.Context(), id[k])
		require.NoError(t, err)
		require.Len(t, attempts, 1, k)
		require.Contains(t, attempts[0].Message, text)
	}
	if len(calls[0]) < 11 {
		watchdog.SkipIfStood(200 * time.Millisecond) // within which it collects
	}
	require.Len(t, calls[0], 11, "all but the second of the key: %v", calls)
	require.NotContains(t, calls[0], "key 2")
}
