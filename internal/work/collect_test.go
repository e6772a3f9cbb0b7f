package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// batchCall is one call of the scene's batch step.
type batchCall struct {
	at  time.Time
	ids []int64
	ctx error // the cause for which its context had ended when it returned
}

// batched gives the scene's machine a batch step "b", and records its calls. decide is its code;
// nil ends each instance at once.
func batched(s *scene, most int, within time.Duration, decide func(ctx context.Context, members []step.Member) []step.Decided) *[]batchCall {
	calls := &[]batchCall{}
	if decide == nil {
		decide = func(_ context.Context, members []step.Member) []step.Decided { return each(members, done()) }
	}
	s.batch = step.Batch{Most: most, Within: within, Run: func(ctx context.Context, members []step.Member) []step.Decided {
		call := batchCall{at: time.Now()}
		for _, m := range members {
			call.ids = append(call.ids, m.Claim.ID)
		}
		var at int
		s.note(func() { at = len(*calls); *calls = append(*calls, call) })
		defer s.note(func() { (*calls)[at].ctx = context.Cause(ctx) })
		return decide(ctx, members)
	}}
	return calls
}

// each returns the same outcome for all members.
func each(members []step.Member, out *step.Commit) []step.Decided {
	decided := make([]step.Decided, len(members))
	for i := range decided {
		own := *out
		decided[i].Commit = &own
	}
	return decided
}

// failAll returns the same error for all members.
func failAll(members []step.Member, err error) []step.Decided {
	decided := make([]step.Decided, len(members))
	for i := range decided {
		decided[i].Err = err
	}
	return decided
}

// atBatch makes a row to insert stand at the batch step.
func atBatch(r *row) { r.Step = "b" }

func labelled(value string) func(*row) {
	return func(r *row) { r.Labels = map[string]string{"of": value} }
}

// byLabel lets only instances of the same label share a call.
func byLabel(s *scene) {
	s.batch.Key = func(c *step.Claim) (string, error) { return c.Labels["of"], nil }
}

func sizes(calls []batchCall) (n []int) {
	for _, call := range calls {
		n = append(n, len(call.ids))
	}
	return n
}

// retrying makes the machine retry each failed step after a second.
func retrying(s *scene, attempts int) {
	s.machine.MaxAttempts = attempts
	s.machine.OnError = func(_ context.Context, c *step.Claim, err error) (*step.Commit, error) {
		if attempts > 0 && c.Attempt+1 >= attempts {
			return &step.Commit{Kind: step.Fail, Err: step.SanitizeError(err), Failure: string(fsm.FailureExhausted)}, nil
		}
		return &step.Commit{Kind: step.Retry, Err: step.SanitizeError(err), Delay: time.Second}, nil
	}
}

func TestABatchStepIsCalledForManyAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		rows   int
		want   []int
		takes  time.Duration
	}{
		"a full batch does not wait":               {time.Minute, 200, []int{100, 100}, 0},
		"the rest waits for more, in vain":         {3 * time.Second, 250, []int{100, 100, 50}, 3 * time.Second},
		"one alone waits":                          {3 * time.Second, 1, []int{1}, 3 * time.Second},
		"nobody waits if none is to be waited for": {0, 250, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				calls := batched(s, 100, c.within, nil)
				var events []worker.BatchEvent
				s.config.Hooks = []worker.Hooks{{Batch: func(_ context.Context, e worker.BatchEvent) { s.note(func() { events = append(events, e) }) }}}
				for range c.rows {
					s.db.insert(atBatch)
				}
				began := time.Now()
				s.start()
				s.ended(time.Minute)
				got := sizes(*calls)
				if c.want == nil {
					require.LessOrEqual(t, len(got), 6, "each takes what is there, as many at once as there may be: %v", got)
				} else {
					require.Equal(t, c.want, got)
				}
				require.WithinDuration(t, began.Add(c.takes), time.Now(), 200*time.Millisecond)
				s.note(func() {
					require.Len(t, events, len(got))
					for _, e := range events { // they may come in another order
						require.Contains(t, got, e.Size)
						require.Equal(t, worker.BatchEvent{Machine: "m", Version: 1, Step: "b", Queue: "q", Size: e.Size, Most: 100, Waited: e.Waited}, e)
					}
				})
			})
		})
	}
}

func TestInstancesArriveInTheOrderOfClaims(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 10, time.Second, nil)
		for i := range 10 {
			s.db.insert(atBatch, priority(9-i))
		}
		s.start()
		s.ended(time.Minute)
		var ids []int64
		for _, call := range *calls {
			ids = append(ids, call.ids...)
		}
		require.Equal(t, int64(10), ids[0], "the most urgent one is claimed first")
		require.True(t, slices.IsSortedFunc((*calls)[0].ids[1:], func(a, b int64) int { return int(b - a) }), "%v", ids)
	})
}

func TestOnlyInstancesOfOneKeyShareACall(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		calls := batched(s, 4, time.Second, nil)
		byLabel(s)
		of := map[int64]string{}
		for i := range 30 {
			label := fmt.Sprint(i % 3)
			of[s.db.insert(atBatch, labelled(label)).ID] = label
		}
		s.start()
		s.ended(time.Minute)
		require.ElementsMatch(t, []int{4, 4, 2, 4, 4, 2, 4, 4, 2}, sizes(*calls))
		for _, call := range *calls {
			for _, id := range call.ids {
				require.Equal(t, of[call.ids[0]], of[id])
			}
		}
	})
}

// An instance of which the key is unknown runs alone, and fails with the error of the function.
func TestAFaultOfTheKeyIsTheInstancesOwn(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 10, time.Second, nil)
		s.batch.Key = func(c *step.Claim) (string, error) {
			switch c.Labels["of"] {
			case "error":
				return "", errors.New("no key")
			case "goexit":
				runtime.Goexit()
			}
			return "", nil
		}
		bad, worse := s.db.insert(atBatch, labelled("error")), s.db.insert(atBatch, labelled("goexit"))
		for range 5 {
			s.db.insert(atBatch)
		}
		s.db.insert(atBatch, large("{}")) // its state does not come with the claim
		s.start()
		s.ended(time.Minute)
		require.Equal(t, "no key", s.db.look(bad.ID).err)
		require.Contains(t, s.db.look(worse.ID).err, "Goexit")
		require.ElementsMatch(t, []int{5, 1}, sizes(*calls))
	})
}

// Instances that wait for a batch have no slot, and other steps of their queue run meanwhile.
func TestWhatIsCollectedStarvesNobody(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 100, 30*time.Second, nil)
		s.run = takes(time.Second)
		var plain []int64
		for range 20 {
			s.db.insert(atBatch)
		}
		for range 20 {
			plain = append(plain, s.db.insert().ID)
		}
		p := s.start()
		s.pass(25 * time.Second)
		for _, id := range plain {
			require.Equal(t, fsm.StatusDone, s.db.look(id).status)
		}
		require.Empty(t, *calls)
		require.Equal(t, 20, p.Activity().Queues[0].Collected)
		s.ended(time.Minute)
		require.Equal(t, []int{20}, sizes(*calls))
	})
}

// Between steps of the same priority slots alternate, and a more urgent step goes first.
func TestABatchAndOtherStepsShareTheSlots(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 5, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
			pace.Sleep(ctx, time.Second)
			return each(members, done())
		})
		buffered(s, 1, 100)
		s.run = takes(time.Second)
		for range 10 {
			s.db.insert()
		}
		for range 50 {
			s.db.insert(atBatch)
		}
		s.db.insert(priority(1))
		s.start()
		s.ended(time.Minute)
		require.Equal(t, slices.Repeat([]int{5}, 10), sizes(*calls))
		runs := s.witness.runs()
		require.EqualValues(t, 1, runs[len(runs)-1].claim.Priority, "the least urgent one is the last")
		alternations := 0
		for i, v := range runs[1:] {
			if (v.claim.Step == "b") != (runs[i].claim.Step == "b") {
				alternations++
			}
		}
		require.Greater(t, alternations, 15)
	})
}

// A call takes one slot, until the outcomes of all its instances go to the committer.
func TestABatchTakesOneSlot(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 2, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
			pace.Sleep(ctx, time.Second)
			return each(members, done())
		})
		s.db.weather.latency = func(verb string) time.Duration {
			if verb == "commit" {
				return 10 * time.Second
			}
			return 0
		}
		for range 2 * committingEach {
			s.db.insert(atBatch)
		}
		s.start()
		s.ended(5 * time.Minute)
		require.Equal(t, []int{2, 2, 2, 2}, sizes(*calls))
		apart := func(i int) time.Duration { return (*calls)[i+1].at.Sub((*calls)[i].at) }
		require.Equal(t, time.Second, apart(0))
		require.Equal(t, time.Second, apart(1), "the room outside is taken now")
		require.Greater(t, apart(2), 5*time.Second)
	})
}

// One whose outcome is held up leaves the slot to others, as it would alone.
func TestAHeldOutcomeOfABatchDoesNotKeepTheSlot(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 3, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
			pace.Sleep(ctx, time.Second)
			return each(members, done())
		})
		held := s.db.insert(atBatch)
		for range 5 {
			s.db.insert(atBatch)
		}
		s.start()
		s.pass(500 * time.Millisecond)
		s.hold(forever(), held.ID)
		s.until(time.Minute, func() bool { return len(s.left()) == 1 }, "the others end")
		require.Equal(t, []int{3, 3}, sizes(*calls))
		s.hold(time.Time{}, held.ID)
		s.ended(time.Minute)
	})
}

// Stop gives collected instances back, untouched and at once.
func TestDrainGivesBackWhatIsCollected(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		calls := batched(s, 100, time.Minute, nil)
		for range 30 {
			s.db.insert(atBatch)
		}
		p := s.start()
		s.pass(time.Second)
		require.Equal(t, 30, p.Activity().Queues[0].Collected)
		took, err := p.stop()
		require.NoError(t, err)
		require.Zero(t, took)
		require.Empty(t, *calls)
		require.Len(t, s.sent("release"), 1, "all together")
		for _, r := range s.db.all() {
			require.Equal(t, fsm.StatusRunnable, r.status)
			require.Zero(t, r.Attempt+r.Crashes)
		}
	})
}

func TestAPausedQueueGivesBackWhatIsCollected(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		calls := batched(s, 100, time.Minute, nil)
		for range 30 {
			s.db.insert(atBatch)
		}
		p := s.start()
		s.pass(3 * time.Second)
		s.setPaused("q")
		s.pass(3 * time.Second)
		require.Zero(t, p.Activity().InFlight)
		s.setPaused()
		s.ended(2 * time.Minute)
		require.Equal(t, []int{30}, sizes(*calls))
	})
}

// An instance that lost its lease while it was collected does not take part.
func TestACollectedInstanceWithoutALeaseDoesNotRun(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 100, 50*time.Second, nil)
		for range 3 {
			s.db.insert(atBatch)
		}
		s.start()
		s.pass(5 * time.Second)
		s.db.change(2, func(r *row) { r.Token, r.worker, r.lease = r.Token+1000, "another", time.Now().Add(time.Hour) })
		s.until(2*time.Minute, func() bool { return s.db.look(3).terminal() }, "the others end")
		require.Equal(t, [][]int64{{1, 3}}, [][]int64{(*calls)[0].ids})
		s.db.change(2, byOperator)
	})
}

// Next leads neither from a batch step nor to one with the claim kept: the instances of a batch
// share a slot.
func TestNoClaimIsKeptAroundABatch(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.RunAheadFor = time.Hour
		batched(s, 5, time.Second, func(_ context.Context, members []step.Member) []step.Decided {
			return each(members, &step.Commit{Kind: step.Next, Step: "s", State: []byte("{}")})
		})
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			switch c.Visit {
			case 0:
				return &step.Commit{Kind: step.Next, Step: "b", State: []byte("{}")}, nil
			case 2:
				return next(), nil // ahead, as ever
			}
			return done(), nil
		}
		for range 5 {
			s.db.insert()
		}
		s.start()
		s.ended(time.Minute)
		tokens := map[int64]bool{}
		for _, v := range s.witness.runs(3) {
			tokens[v.claim.Token] = true
		}
		require.Len(t, s.witness.runs(3), 4)
		require.Len(t, tokens, 3, "the first, the batch, and both steps after it")
	})
}

// Two instances of one partition key never share a call; nor does another run under the key while a
// call works for one of which the claim is lost.
func TestPartitionKeysHoldForBatches(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		calls := batched(s, 10, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
			pace.Sleep(context.WithoutCancel(ctx), 30*time.Second)
			return each(members, done())
		})
		for i := range 12 {
			s.db.insert(atBatch, keyed(fmt.Sprint(i%4)))
		}
		s.start()
		s.pass(5 * time.Second)
		s.db.change(1, byOperator) // its key is free in the database, and the call goes on
		s.ended(10 * time.Minute)
		require.Equal(t, 12, len(slices.Concat((*calls)[0].ids, (*calls)[1].ids, (*calls)[2].ids)), "%v", sizes(*calls))
	})
}

// Middleware that lets only some steps run at a time holds a batch up, and does not lock it up.
func TestAMemberThatIsHeldUpGetsACallOfItsOwn(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 5, time.Second, nil)
		places := make(chan struct{}, 2)
		s.config.Around = []Around{func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
			places <- struct{}{}
			defer func() { <-places }()
			return run(ctx)
		}}
		for range 5 {
			s.db.insert(atBatch)
		}
		s.start()
		s.ended(time.Minute)
		require.Equal(t, []int{2, 2, 1}, sizes(*calls))
	})
}

// Middleware surrounds each instance, and its refusal is that instance's own.
func TestMiddlewareSurroundsEachInstanceOfABatch(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 5, time.Second, nil)
		kinds := map[fsm.ID]fsm.OutcomeKind{}
		s.config.Around = []Around{func(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
			switch i.ID {
			case 2:
				return errors.New("refused")
			case 3:
				panic("refused")
			case 4:
				runtime.Goexit()
			}
			err := run(ctx)
			s.note(func() { kinds[i.ID] = fsm.OutcomeFrom(ctx) })
			return err
		}}
		for range 5 {
			s.db.insert(atBatch)
		}
		began := time.Now()
		s.start()
		s.ended(time.Minute)
		require.Less(t, time.Since(began), 4*time.Second, "nobody waits for what does not come")
		require.Equal(t, []int64{1, 5}, (*calls)[0].ids)
		require.Equal(t, map[fsm.ID]fsm.OutcomeKind{1: step.Done, 5: step.Done}, kinds)
		for id := int64(2); id <= 4; id++ {
			require.Equal(t, fsm.StatusFailed, s.db.look(id).status)
		}
	})
}

// An outcome that Postgres refuses, and one with its own transaction, concern one instance.
func TestEachOutcomeOfABatchIsCommittedByItself(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		batched(s, 5, time.Second, func(_ context.Context, members []step.Member) []step.Decided {
			decided := each(members, done())
			for i, m := range members {
				switch m.Claim.ID {
				case 2:
					decided[i].Commit = &step.Commit{Kind: step.Next, Step: "s", State: []byte(`"` + poison + `"`)}
				case 3:
					decided[i].Commit = &step.Commit{Within: func(context.Context, any) (*step.Commit, error) { return done(), nil }}
				case 4:
					decided[i].Commit = &step.Commit{Within: func(context.Context, any) (*step.Commit, error) { return nil, errors.New("undone") }}
				}
			}
			return decided
		})
		for range 5 {
			s.db.insert(atBatch)
		}
		s.start()
		s.ended(time.Minute)
		for id, want := range map[int64]fsm.Status{1: fsm.StatusDone, 2: fsm.StatusFailed, 3: fsm.StatusDone, 4: fsm.StatusFailed, 5: fsm.StatusDone} {
			require.Equal(t, want, s.db.look(id).status, id)
		}
		require.Equal(t, "undone", s.db.look(4).err)
	})
}

// A process does not collect without bound: beyond collectMost the oldest groups start as they are.
func TestTheCollectionIsBounded(t *testing.T) {
	play(t, 50, func(t *testing.T, s *scene) {
		calls := batched(s, 100, time.Minute, nil)
		byLabel(s)
		for i := range collectMost + 100 {
			s.db.insert(atBatch, labelled(fmt.Sprint(i)))
		}
		p := s.start()
		s.until(30*time.Second, func() bool { return len(*calls) >= 100 }, "the oldest start")
		s.pass(time.Second)
		require.LessOrEqual(t, p.Activity().InFlight, collectMost+claimMost)
		s.ended(2 * time.Minute)
		require.Equal(t, collectMost+100, len(*calls)) //nolint:testifylint // not to print them all
	})
}

func TestAHandTakesABatch(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		calls := batched(s, 4, time.Minute, nil)
		byLabel(s)
		for i := range 10 {
			s.db.insert(atBatch, labelled(fmt.Sprint(i%2)))
		}
		_, h := s.byHand()
		for _, want := range []string{"1 3 5 7", "2 4", "6 8", "9", "10"} {
			most := 100
			if want == "2 4" {
				most = 2
			}
			taken, err := h.Take(t.Context(), "q", most)
			require.NoError(t, err)
			var ids []string
			for _, info := range taken.Infos() {
				ids = append(ids, fmt.Sprint(info.ID))
			}
			if want == "6 8" {
				want = "6 8 10"
			}
			require.Equal(t, want, strings.Join(ids, " "))
			require.NoError(t, taken.Run(t.Context()))
			if strings.HasSuffix(want, "10") {
				break
			}
		}
		require.Equal(t, []int{4, 2, 3}, sizes(*calls))
		for _, r := range s.db.all() {
			require.Zero(t, r.Attempt+r.Crashes)
		}
		taken := s.take(h)
		require.EqualValues(t, 9, taken.Info().ID)
		taken.GiveBack()
		require.Equal(t, fsm.StatusRunnable, s.db.look(9).status)
	})
}
