package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var (
	loan  = fsm.Declare[string, string]("loan")
	quote = fsm.Declare[string, string]("quote")
	hurry = fsm.DeclareSignal[string]("hurry")
	reply = fsm.DeclareSignal[bool]("reply")
)

type loanVisit = fsm.Visit[string, string]

// lending asks five banks, whose keys are their numbers, and says what it knows when it goes on.
func lending(join func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome) []fsm.Definition {
	ask := func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		var quotes []fsm.Spec
		for i := range 5 {
			quotes = append(quotes, quote.New(v.State).Key(fsm.Key(fmt.Sprint("bank ", i))))
		}
		return join(v.ScheduleChildren("choose", v.State, quotes...)), nil
	}
	choose := func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		r, open := v.Round(), 0
		for _, c := range quote.Children(v) {
			if _, err := c.Result(); errors.Is(err, fsm.ErrNotTerminal) {
				open++
			}
		}
		return v.Done(fmt.Sprintf("%d done, %d failed, %d left, %d open, %d signals, timed out %t", r.Done, r.Failed, r.Left, open,
			len(v.Awaited()), v.TimedOut())), nil
	}
	start := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		return v.Await("end", v.State, reply), nil
	}
	end := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		if yes, _, err := reply.First(v); err != nil || !yes {
			return v.Fail(errors.New("no")), err
		}
		return v.Done("3 %"), nil
	}
	return []fsm.Definition{
		loan.Define(fsm.Step("start", ask), fsm.Step("choose", choose)),
		quote.Define(fsm.Step("start", start), fsm.Step("end", end)),
	}
}

// A joining step runs once, with the children that its policy waited for; a message about the
// parent meanwhile names these.
func TestJoinsWithAPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		join    func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome
		replies string // y or n of the banks, in order; h: the signal hurry; t: the timeout; and of a time
		why     string // before the last of them
		want    string
	}{
		"all": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j }, "ynyyy", "it awaits 1 children since",
			"4 done, 1 failed, 0 left, 0 open, 0 signals, timed out false"},
		"quorum": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Quorum(2) }, "nyy",
			"it waits for 2 of 5 children to be done, 1 done, 1 failed so far, since", "2 done, 1 failed, 2 left, 2 open, 0 signals, timed out false"},
		"quorum out of reach": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Quorum(4) }, "nn",
			"it waits for 4 of 5 children to be done, 0 done, 1 failed so far, since", "0 done, 2 failed, 3 left, 3 open, 0 signals, timed out false"},
		"race": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Race() }, "n", "it waits for 1 of 5 children to end, 0 done",
			"0 done, 1 failed, 4 left, 4 open, 0 signals, timed out false"},
		"fail fast": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.FailFast().Quorum(3) }, "yn",
			"it waits for 3 of 5 children to be done, or 1 of 5 children to fail, 1 done, 0 failed so far, since",
			"1 done, 1 failed, 3 left, 3 open, 0 signals, timed out false"},
		"signal": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Quorum(3).Or(hurry) }, "yh",
			"it waits for 3 of 5 children to be done, 1 done, 0 failed so far, or for a signal, hurry, since",
			"1 done, 0 failed, 4 left, 4 open, 1 signals, timed out false"},
		"timeout": {func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Timeout(time.Hour) }, "yt", "it waits for 5 children to end, 1 done, 0 failed so far, since",
			"1 done, 0 failed, 4 left, 4 open, 0 signals, timed out true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit := durabletest.New(t, durabletest.Config{Machines: lending(c.join)})
			id, err := kit.Engine.Insert(t.Context(), loan.New("house"))
			require.NoError(t, err)
			durabletest.RequireDrain(t, kit)
			bank := 0
			for i, reply := range c.replies {
				if i == len(c.replies)-1 {
					why, err := kit.Engine.Admin().Why(t.Context(), id)
					require.NoError(t, err)
					require.Equal(t, engine.CauseChildren, why[0].Kind)
					require.Contains(t, why[0].String(), c.why)
					require.Equal(t, name == "all", why[0].Join == nil)
				}
				switch reply {
				case 'h':
					send(t, kit, id, hurry.With("now"))
				case 't':
					durabletest.RequireAdvance(t, kit, time.Hour)
				default:
					send(t, kit, fsm.Key(fmt.Sprint("bank ", bank)), replyOf(reply))
					bank++
				}
				durabletest.RequireDrain(t, kit)
			}
			got, err := loan.Get(t.Context(), kit.Engine, id)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Result)
			for ; bank < 5; bank++ { // those that it did not wait for go on
				send(t, kit, fsm.Key(fmt.Sprint("bank ", bank)), replyOf('y'))
			}
			durabletest.RequireDrain(t, kit)
			after, err := loan.Get(t.Context(), kit.Engine, id)
			require.NoError(t, err)
			require.Equal(t, got, after)
		})
	}
}

func replyOf(c rune) fsm.Message { return reply.With(c == 'y') }

// The rest of a round is cancelled however the wait ends, with what the children have spawned, and
// not before.
func TestCancelRest(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, kit *durabletest.Kit, id fsm.ID){
		"quorum":  func(t *testing.T, kit *durabletest.Kit, _ fsm.ID) { send(t, kit, fsm.Key("bank 1"), replyOf('y')) },
		"signal":  func(t *testing.T, kit *durabletest.Kit, id fsm.ID) { send(t, kit, id, hurry.With("now")) },
		"timeout": func(t *testing.T, kit *durabletest.Kit, _ fsm.ID) { durabletest.RequireAdvance(t, kit, time.Hour) },
		"cancel": func(t *testing.T, kit *durabletest.Kit, id fsm.ID) {
			_, err := kit.Engine.Admin().Cancel(t.Context(), id)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit := durabletest.New(t, durabletest.Config{Machines: lending(func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome {
				return j.Quorum(1).Or(hurry).Timeout(time.Hour).CancelRest()
			})})
			id, err := kit.Engine.Insert(t.Context(), loan.New("house"))
			require.NoError(t, err)
			durabletest.RequireDrain(t, kit)
			send(t, kit, fsm.Key("bank 0"), replyOf('n'))
			durabletest.RequireDrain(t, kit)
			why, err := kit.Engine.Admin().Why(t.Context(), id)
			require.NoError(t, err)
			require.Contains(t, why[0].String(), "1 of 5 children to be done, 0 done, 1 failed so far, and then cancels the others, or for a signal")
			end(t, kit, id)
			durabletest.RequireDrain(t, kit)
			n := 0
			for i, err := range kit.Engine.All(t.Context(), engine.Query{Filter: engine.Filter{Parent: id}}) {
				require.NoError(t, err)
				if i.Failure == fsm.FailureCancelled {
					require.Equal(t, "cancelled: its parent does not wait for it any more", i.LastError)
					n++
				}
			}
			want := 4
			if name == "quorum" {
				want = 3
			}
			require.Equal(t, want, n)
		})
	}
}

// A parent that rejoins with each end sees each of them, is told what it waits for, and at last has
// all children.
func TestRejoin(t *testing.T) {
	t.Parallel()
	collect := func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		r := v.Round()
		seen := v.State + fmt.Sprint(r.Done, r.Failed, r.Left, ".")
		if r.Left == 0 {
			return v.Done(seen), nil
		}
		return v.Rejoin("choose", seen).Race(), nil
	}
	machines := lending(func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Race() })
	machines[0] = loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		var quotes []fsm.Spec
		for i := range 3 {
			quotes = append(quotes, quote.New(v.State).Key(fsm.Key(fmt.Sprint("bank ", i))))
		}
		return v.ScheduleChildren("choose", v.State, quotes...).Race(), nil
	}), fsm.Step("choose", collect))
	kit := durabletest.New(t, durabletest.Config{Machines: machines})
	id, err := kit.Engine.Insert(t.Context(), loan.New(""))
	require.NoError(t, err)
	for bank, want := range []string{"1 of 3 children to end, 0 done, 0 failed", "2 of 3 children to end, 1 done, 0 failed", "3 of 3 children to end, 1 done, 1 failed"} {
		durabletest.RequireDrain(t, kit)
		why, err := kit.Engine.Admin().Why(t.Context(), id)
		require.NoError(t, err)
		require.Contains(t, why[0].String(), want)
		send(t, kit, fsm.Key(fmt.Sprint("bank ", bank)), replyOf(rune("yny"[bank])))
	}
	d := durabletest.RequireDrain(t, kit)
	require.Zero(t, d.Outcomes[fsm.OutcomeRejoin], "the last visit is done")
	got, err := loan.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, "1 0 2.1 1 1.2 1 0.", got.Result)
}

// RunStep returns the policy of a Rejoin.
func ExampleRunStep_rejoin() {
	loans := loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		return v.Rejoin("start", v.State).Quorum(1).Timeout(time.Hour), nil
	}))
	out, err := durabletest.RunStep(context.Background(), loans, "start", durabletest.Visit{State: "house", Children: []durabletest.Child{
		durabletest.DoneChild(quote, "house", "3 %"), durabletest.LiveChild(quote, "house")}})
	fmt.Println(out.Kind, out.Join.Quorum, out.Timeout, err)
	// Output: rejoin 1 1h0m0s <nil>
}

// A timeout of a join can be fired, and only one that there is.
func TestFireTimeoutOfAJoin(t *testing.T) {
	t.Parallel()
	kit := durabletest.New(t, durabletest.Config{Machines: lending(func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome {
		return j.Until(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC))
	})})
	id, err := kit.Engine.Insert(t.Context(), loan.New("house"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.NoError(t, kit.FireTimeout(t.Context(), id))
	durabletest.RequireDrain(t, kit)
	got, err := loan.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, "0 done, 0 failed, 5 left, 5 open, 0 signals, timed out true", got.Result)
}

// A joining step is tested with children that have not ended, and the step before it by the policy
// of its outcome.
func ExampleLiveChild() {
	loans := lending(func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Quorum(2).Timeout(time.Hour).Or(hurry) })[0]
	out, err := durabletest.RunStep(context.Background(), loans, "start", durabletest.Visit{State: "house"})
	fmt.Println(out.Kind, out.Join.Quorum, out.Timeout, out.Names, err)
	out, err = durabletest.RunStep(context.Background(), loans, "choose", durabletest.Visit{State: "house", Children: []durabletest.Child{
		durabletest.DoneChild(quote, "house", "3 %"), durabletest.LiveChild(quote, "house"), durabletest.DoneChild(quote, "house", "4 %")}})
	fmt.Println(string(out.Result), err)
	// Output:
	// children 2 1h0m0s [hurry] <nil>
	// "2 done, 0 failed, 1 left, 1 open, 0 signals, timed out false" <nil>
}

// A parent is shown its children as they end, each once, in that order, however often its step
// runs.
func TestStream(t *testing.T) {
	t.Parallel()
	tries := 0
	machines := lending(func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Stream(2) })
	machines[0] = loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		var quotes []fsm.Spec
		for i := range 4 {
			quotes = append(quotes, quote.New(v.State).Key(fsm.Key(fmt.Sprint("bank ", i))))
		}
		return v.ScheduleChildren("choose", v.State, quotes...).Stream(2), nil
	}), fsm.Step("choose", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		r, seen := v.Round(), v.State
		for _, one := range quote.Children(v) {
			seen += fmt.Sprint(one.ID-v.ID, one.Status[:1], " ")
		}
		seen += fmt.Sprint(r.Done, r.Failed, r.Left, ". ")
		if tries++; tries%2 == 1 {
			return v.Retry(v.State, 0), nil
		}
		if r.Left == 0 {
			return v.Done(seen), nil
		}
		return v.Rejoin("choose", seen).Stream(2), nil
	}))
	kit := durabletest.New(t, durabletest.Config{Machines: machines})
	id, err := kit.Engine.Insert(t.Context(), loan.New(""))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	for _, banks := range [][]int{{2}, {3, 0, 1}} {
		why, err := kit.Engine.Admin().Why(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, 2, why[0].Join.Stream)
		for _, bank := range banks {
			send(t, kit, fsm.Key(fmt.Sprint("bank ", bank)), replyOf(rune("yny"[bank%3])))
		}
		durabletest.RequireDrain(t, kit)
	}
	got, err := loan.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusDone, got.Status)
	require.True(t, strings.HasPrefix(got.Result, "3"), got.Result)
	for child := 1; child <= 4; child++ {
		require.Equal(t, 1, strings.Count(got.Result, fmt.Sprint(child, "d "))+strings.Count(got.Result, fmt.Sprint(child, "f ")), "child %d in %s", child, got.Result)
	}
}

// RunStep runs a step with a portion of a stream.
func ExampleRunStep_stream() {
	loans := loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		fmt.Printf("%+v\n", v.Round())
		return v.Rejoin("start", v.State).Stream(10), nil
	}))
	out, err := durabletest.RunStep(context.Background(), loans, "start", durabletest.Visit{State: "house", Stream: true, Left: 7, Children: []durabletest.Child{
		durabletest.DoneChild(quote, "house", "3 %")}})
	fmt.Println(out.Kind, out.Join.Stream, err)
	// Output:
	// {Done:1 Failed:0 Skipped:0 Left:7}
	// rejoin 10 <nil>
}
