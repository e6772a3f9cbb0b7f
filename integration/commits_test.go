package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// For every outcome, a connection breaks at its COMMIT: before Postgres has got it, or after
// Postgres has committed it but before the engine knows. Either way the outcome is applied once,
// and its step does not run again because of it.
func TestAnOutcomeWhoseCommitIsCutOffIsAppliedOnce(t *testing.T) {
	t.Parallel()
	type journey = fsm.Visit[string, string]
	signal := fsm.DeclareSignal[string]("signal")
	m := fsm.Declare[string, string]("journey")
	leaf := fsm.Declare[string, string]("leaf")

	// For each outcome, a step makes it once, with the marker in it, and then ends.
	for _, outcome := range []struct {
		name  string
		make  func(v *journey, marker string) fsm.Outcome
		visit int64
	}{
		{"next that is due", func(v *journey, s string) fsm.Outcome { return v.Next("end", s).At(time.Unix(1, 0)) }, 1},
		{"next that keeps its claim", func(v *journey, s string) fsm.Outcome { return v.Next("end", s) }, 1},
		{"delayed next", func(v *journey, s string) fsm.Outcome { return v.Next("end", s).After(time.Millisecond) }, 1},
		{"retry", func(v *journey, s string) fsm.Outcome { return v.Retry(s, time.Millisecond) }, 0},
		{"await", func(v *journey, s string) fsm.Outcome {
			return v.Await("end", s, signal).Timeout(100 * time.Millisecond)
		}, 1},
		{"children", func(v *journey, s string) fsm.Outcome {
			return v.ScheduleChildren("end", s, leaf.New("a"), leaf.New("b"), leaf.New("c"))
		}, 1},
		{"keyed children", func(v *journey, s string) fsm.Outcome {
			return v.ScheduleChildren("end", s, leaf.New("a").Key("a"), leaf.New("b").Key("b"), leaf.New("c").Key("a"))
		}, 1},
		{"done", func(v *journey, s string) fsm.Outcome { return v.Done(s) }, 0},
		{"fail", func(v *journey, s string) fsm.Outcome { return v.Fail(fmt.Errorf("failed: %s", s)) }, 0},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s cut after %v", outcome.name, after), func(t *testing.T) {
				t.Parallel()
				database := pgtest.Migrated(t)
				p, url := newProxy(t, database)
				marker := marked(outcome.name)
				var starts, ends, leaves atomic.Int64
				def := m.Define(
					fsm.Step("start", func(_ context.Context, v *journey) (fsm.Outcome, error) {
						if v.Attempt > 0 {
							return v.Done("retried"), nil
						}
						starts.Add(1)
						return outcome.make(v, marker), nil
					}),
					fsm.Step("end", func(_ context.Context, v *journey) (fsm.Outcome, error) {
						ends.Add(1)
						return v.Done(strconv.Itoa(len(v.Children()))), nil
					}))
				log := newJournal(t)
				stale := make(chan fsm.Info, 10)
				c := configOn(t, url, def, leaf.Job(func(context.Context, string) (string, error) { leaves.Add(1); return "", nil }))
				c.Logger = log.logger()
				c.Hooks = []engine.Hooks{{Stale: func(_ context.Context, e engine.StaleEvent) { stale <- e.Instance }}}
				cutting := p.cut(marker, after)
				start(t, c)
				direct := client(t, pgtest.Pool(t, database))
				id := insert(t, direct, m.New("begin"))
				i := ended(t, direct, id)

				cutting.happened(t)
				require.EqualValues(t, 1, starts.Load(), "the step ran again")
				require.Equal(t, outcome.visit, i.Visit)
				require.LessOrEqual(t, ends.Load(), int64(1))
				// The engine reads from the row whether the commit took effect. If a claim has found the row
				// first, the next step's commit may have left its own mark there, and the engine says that it
				// cannot tell.
				late := len(stale) // read first: a doubt is logged before its hook is called
				doubts := log.lines("level=WARN", "cannot be told from a stale one")
				require.LessOrEqual(t, late, len(doubts))
				require.True(t, after || len(doubts) == 0, "a commit that Postgres never got is in doubt")
				require.Zero(t, i.Crashes)
				switch outcome.name {
				case "children":
					require.JSONEq(t, `"3"`, string(i.Result))
					require.EqualValues(t, 3, leaves.Load())
				case "keyed children":
					require.JSONEq(t, `"2"`, string(i.Result))
					require.EqualValues(t, 2, leaves.Load())
				case "retry":
					require.JSONEq(t, `"retried"`, string(i.Result))
					require.Equal(t, 1, i.Attempt)
				case "fail":
					require.Equal(t, fsm.StatusFailed, i.Status)
					require.Contains(t, i.LastError, marker)
				}
				// The row may have ended before the engine has found that it got no answer.
				eventually(t, func() bool { return len(log.lines("level=WARN", "cannot commit")) > 0 }, "the engine does not say so")
				log.says(t, "level=WARN", "cannot commit")
				log.isShort(t)
			})
		}
	}
}

func TestAChildWhoseCommitIsCutOffJoinsOnce(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			t.Parallel()
			database := pgtest.Migrated(t)
			p, url := newProxy(t, database)
			parent := fsm.Declare[string, int]("parent")
			child := fsm.Declare[int, string]("child")
			gate := make(chan struct{})
			var joins atomic.Int64
			c := configOn(t, url,
				child.Job(func(_ context.Context, n int) (string, error) {
					if n == 1 {
						<-gate
					}
					return marked(strconv.Itoa(n)), nil
				}),
				parent.Define(
					fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
						return v.ScheduleChildren("join", "", child.New(0), child.New(1)), nil
					}),
					fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
						joins.Add(1)
						return v.Done(len(v.Children())), nil
					})))
			cutting := p.cut(marked("0"), after)
			eng := start(t, c)
			direct := client(t, pgtest.Pool(t, database))
			id := insert(t, direct, parent.New(""))
			eventually(t, func() bool {
				return query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done'`) == 1
			})
			// Had the first child joined twice, nothing would hold the parent now.
			require.Equal(t, fsm.StatusAwaitingChildren, get(t, eng, id).Status)
			close(gate)
			allDone(t, direct, id)
			cutting.happened(t)
			require.EqualValues(t, 1, joins.Load())
		})
	}
}

func TestAnInsertWhoseCommitIsCutOff(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, keyed := range []bool{false, true} {
			t.Run(fmt.Sprint("after ", after, " keyed ", keyed), func(t *testing.T) {
				t.Parallel()
				database := pgtest.Migrated(t)
				p, url := newProxy(t, database)
				pool := pgtest.Pool(t, url)
				eng := client(t, pool)
				m := fsm.Declare[string, string]("m")
				spec := m.New(marked("insert"))
				if keyed {
					spec = spec.Key("k")
				}
				cutting := p.cut(marked("insert"), after)
				inserted, err := eng.InsertMany(t.Context(), []fsm.Spec{spec})
				cutting.happened(t)
				rows := query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable`)
				if keyed {
					require.NoError(t, err)
					require.False(t, inserted[0].Duplicate, "it took itself for another")
					require.Equal(t, 1, rows)
					return
				}
				// Without a key it cannot be told whether a repetition would insert a second instance, so the
				// caller gets an error.
				require.Error(t, err)
				require.Equal(t, map[bool]int{false: 0, true: 1}[after], rows)
			})
		}
	}
}

func TestASignalWhoseCommitIsCutOff(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, deduped := range []bool{false, true} {
			t.Run(fmt.Sprint("after ", after, " deduped ", deduped), func(t *testing.T) {
				t.Parallel()
				database := pgtest.Migrated(t)
				p, url := newProxy(t, database)
				pool := pgtest.Pool(t, url)
				eng := client(t, pool)
				id := insert(t, eng, fsm.Declare[string, string]("m").New(""))
				message := fsm.DeclareSignal[string]("signal").With(marked("signal"))
				if deduped {
					message = message.DedupKey("d")
				}
				cutting := p.cut(marked("signal"), after)
				_, err := eng.Signal(t.Context(), id, message)
				cutting.happened(t)
				rows := query[int](t, pool, `SELECT count(*) FROM gendurable.signals`)
				if deduped {
					require.NoError(t, err)
					require.Equal(t, 1, rows)
					return
				}
				require.Error(t, err)
				require.Equal(t, map[bool]int{false: 0, true: 1}[after], rows)
			})
		}
	}
}

// A claim whose answer is lost gives its rows back at once: no worker waits for its lease, and no
// crash is counted.
func TestAClaimWhoseAnswerIsLostGoesBackAtOnce(t *testing.T) {
	t.Parallel()
	database := pgtest.Migrated(t)
	p, url := newProxy(t, database)
	queue := marked("queue")
	m := fsm.Declare[string, string]("m", fsm.Queue(queue))
	c := configOn(t, url, m.Job(func(context.Context, string) (string, error) { return "", nil }))
	c.Lease = time.Hour
	c.Queues = map[string]engine.Queue{queue: {PollMin: time.Hour, PollMax: time.Hour}} // so that the first to name it is a claim
	direct := client(t, pgtest.Pool(t, database))
	id := insert(t, direct, m.New(""))
	cutting := p.cut(queue, true)
	start(t, c)
	allDone(t, direct, id)
	cutting.happened(t)
	require.Zero(t, get(t, direct, id).Crashes)
}
