package work

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

func TestEverySlotIsUsedAndNoneTwice(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var now, most atomic.Int64
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			defer now.Add(-1)
			most.Store(max(most.Load(), now.Add(1)))
			return takes(time.Second)(ctx, p, c)
		}
		for range 40 {
			s.db.insert()
		}
		began := time.Now()
		s.start()
		s.ended(time.Minute)
		require.EqualValues(t, 4, most.Load())
		require.InDelta(t, 10, time.Since(began).Seconds(), 0.1, "40 steps of a second, 4 at a time")
	})
}

func TestANudgeLeadsToAClaimAtOnce(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Minute + 100*time.Millisecond) // idle, between two polls
		r, at := s.db.insert(), time.Now()
		p.Nudge("no queue of ours", "q")
		s.pass(time.Millisecond)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.Empty(t, s.sent("poll", at), "without a poll")
		require.Len(t, s.sent("claim", at), 1)
	})
}

func TestWhatACommitMakesRunnableIsClaimedAtOnce(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.RunAheadSteps = 1
		r := s.db.insert()
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.Visit == 5 {
				return done(), nil
			}
			return next(), nil
		}
		at := time.Now()
		s.start()
		s.ended(time.Minute)
		require.Less(t, time.Since(at), 50*time.Millisecond, "five claims, no poll in between")
		require.Len(t, s.db.look(r.ID).outcomes, 6)
	})
}

func TestARowIsClaimedWhenItComesDue(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		q := s.config.Queues["q"]
		q.PollMin, q.PollMax = time.Hour, time.Hour // polls do not help
		s.config.Queues["q"] = q
		late, later := s.db.insert(after(7*time.Second)), s.db.insert(after(9*time.Minute))
		at := time.Now()
		s.start()
		s.ended(time.Hour)
		require.Equal(t, 7*time.Second, s.witness.runs(late.ID)[0].from.Sub(at))
		require.Equal(t, 9*time.Minute, s.witness.runs(later.ID)[0].from.Sub(at))
		require.Less(t, len(s.sent("claim")), 10)
	})
}

func TestRowsThatCannotRunDoNotHideTheOthers(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		for range 700 {
			s.db.insert(priority(-1), func(r *row) { r.Machine = "of another process" })
		}
		s.run = takes(time.Hour)
		s.db.insert(keyed("hot"))
		for range 700 {
			s.db.insert(keyed("hot"))
		}
		free := s.db.insert(priority(1))
		s.start()
		s.pass(time.Second)
		require.Len(t, s.witness.runs(free.ID), 1, "behind unknown machines and a busy key")
		require.Less(t, len(s.sent("claim")), 20)
		require.Len(t, s.journal.saying("machine is not registered"), 1)
	})
}

func TestPicksThatMeetOnAKeyTryAgainSmaller(t *testing.T) {
	play(t, 8, func(t *testing.T, s *scene) {
		collisions := 3
		s.db.weather.instead = func(verb, _ string, _ []int64) error {
			if verb == "claim" && collisions > 0 {
				collisions--
				return refusal("23505")
			}
			return nil
		}
		var wanted []int
		s.config.Hooks = []worker.Hooks{{Pick: func(_ context.Context, e worker.PickEvent) { wanted = append(wanted, e.Wanted) }}}
		for range 8 {
			s.db.insert()
		}
		at := time.Now()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, []int{8, 4, 2, 1}, wanted[:4])
		require.LessOrEqual(t, time.Since(at), 5*time.Millisecond, "at once")
	})
}

func TestClaimsBackOffWhileTheDatabaseIsAway(t *testing.T) {
	play(t, 8, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Second) // so that it knows that its queue is not paused
		s.change(func(w *weather) { w.answers = func(string, string) answer { return cut } })
		before := len(s.sent("claim"))
		r := s.db.insert()
		p.Nudge("q")
		s.pass(10 * time.Minute)
		n := len(s.sent("claim")) - before
		require.Less(t, n, 180, "not more often than every 3.75 s in the long run")
		require.Greater(t, n, 100, "but it never gives up")
		require.LessOrEqual(t, len(s.journal.saying("cannot claim")), 61, "the same trouble is logged every 10 s at most")
		s.db.mu.Lock()
		s.db.weather.answers = nil
		s.db.mu.Unlock()
		s.pass(6 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		p.stopped()
	})
}

// A buffer is claimed beyond the slots, most urgent first, and no instance in it is claimed twice.
func TestBuffer(t *testing.T) {
	for _, buffer := range []int{0, 1, 7, 100} {
		t.Run(strconv.Itoa(buffer), func(t *testing.T) {
			play(t, 3, func(t *testing.T, s *scene) {
				q := s.config.Queues["q"]
				q.Buffer = buffer
				s.config.Queues["q"] = q
				s.run = takes(100 * time.Millisecond)
				s.db.weather.latency = func(string) time.Duration { return 10 * time.Millisecond }
				for i := range 300 {
					s.db.insert(priority(i % 3))
				}
				began := time.Now()
				s.start()
				s.ended(time.Minute)
				urgent := 0
				for i, v := range s.witness.runs() {
					if i < 100 && v.claim.Priority == 0 {
						urgent++
					}
				}
				require.InDelta(t, 100, urgent, 3, "the most urgent ran first")
				if buffer != 0 {
					most := 11*time.Second + 50*time.Millisecond
					if buffer == 1 { // too small to hide the claims behind the steps
						most = 14 * time.Second
					}
					require.Less(t, time.Since(began), most, "the slots do not wait for claims")
				}
			})
		})
	}
}

// Claims of a queue whose rows have no partition keys leave out what has to do with keys. A row
// with a key costs one claim more, and the claims that follow for a minute heed keys at once.
func TestARowWithAKeyIsClaimedByTheSecondClaim(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Minute + 100*time.Millisecond)
		claims := func(edits ...func(*row)) int {
			at, r := time.Now(), s.db.insert(edits...)
			p.Nudge("q")
			s.pass(time.Millisecond)
			require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
			return len(s.sent("claim", at))
		}
		keyed := func(r *row) { r.PartitionKey = "key" }
		require.Equal(t, 1, claims())
		require.Equal(t, 2, claims(keyed))
		require.Equal(t, 1, claims(keyed))
		require.Equal(t, 1, claims())
		s.pass(keyedFor)
		require.Equal(t, 1, claims())
		require.Equal(t, 2, claims(keyed))
	})
}
