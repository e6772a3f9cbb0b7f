package work

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// newcomer is the spec of an instance that a scene's processes run.
func newcomer() *step.Spec { return &step.Spec{Machine: "m", Version: 1, Step: "s", Queue: "q"} }

// enter inserts n instances in a process, as an engine does: as claimed, if there are slots. It
// returns the rows, and whether there were slots.
func (p *player) enter(n int) (rows []*row, reserved bool) {
	list := make([]*step.Spec, n)
	for i := range list {
		list[i] = newcomer()
	}
	slots := p.Reserve(list)
	var claims []*step.Claim
	err := p.s.db.send(context.Background(), "insert", "q", func() error {
		for range n {
			rows = append(rows, p.s.db.enter(p.id, p.config.Lease, slots != nil))
		}
		for _, r := range rows {
			claim := r.Claim
			claim.FencingToken = r.Token
			claims = append(claims, &claim)
		}
		return nil
	})
	if slots == nil {
		p.Nudge("q")
		return rows, false
	}
	if err != nil {
		claims = nil
	}
	slots.Settle(claims, err)
	return rows, true
}

// enter adds a row, claimed or runnable. The caller holds mu.
func (db *fake) enter(worker string, lease time.Duration, claimed bool) *row {
	db.ids++
	r := &row{Claim: step.Claim{ID: db.ids, Machine: "m", Version: 1, Step: "s", Queue: "q"}, status: fsm.StatusRunnable, eligible: time.Now()}
	if claimed {
		db.tokens++
		r.status, r.worker, r.Token, r.lease = fsm.StatusExecuting, worker, db.tokens, time.Now().Add(lease)
	}
	db.rows[r.ID] = r
	return r
}

func TestAnInsertForAFreeSlotNeedsNoClaim(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var picks []worker.PickEvent
		s.config.Hooks = []worker.Hooks{{Pick: func(_ context.Context, e worker.PickEvent) { s.note(func() { picks = append(picks, e) }) }}}
		p := s.start()
		s.pass(time.Minute)
		at := time.Now()
		picks = nil
		rows, reserved := p.enter(3)
		require.True(t, reserved)
		s.pass(time.Millisecond)
		for _, r := range rows {
			require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		}
		require.Empty(t, s.sent("claim", at))
		require.Equal(t, []worker.PickEvent{{Queue: "q", Wanted: 3, Got: 3, Inserted: true}}, picks)
		require.Zero(t, p.enterable(5), "there are only four slots")
		require.Equal(t, 4, p.enterable(4))
	})
}

// enterable reports how many of n slots can be reserved at a time, and gives them back.
func (p *player) enterable(n int) int {
	list := make([]*step.Spec, n)
	for i := range list {
		list[i] = newcomer()
	}
	slots := p.Reserve(list)
	if slots == nil {
		return 0
	}
	slots.Settle(nil, nil)
	synctest.Wait()
	return n
}

// However many insert at a time, and however their inserts end, no more run than there are slots:
// the witness of the scene counts.
func TestInsertsNeverTakeMoreThanTheFreeSlots(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.run = takes(20 * time.Millisecond)
		lost := 0
		s.db.weather.latency = func(string) time.Duration { return 4 * time.Millisecond }
		s.db.weather.answers = func(verb, _ string) answer {
			if lost++; verb == "insert" && lost%7 == 0 {
				return lostDone
			}
			return fair
		}
		p := s.start()
		s.pass(time.Second)
		entered := 0
		for i := range 300 {
			go func() {
				if _, reserved := p.enter(1 + i%2); reserved {
					s.note(func() { entered++ })
				}
			}()
			s.pass(time.Duration(i*7%40) * time.Millisecond)
		}
		s.ended(time.Minute)
		require.Greater(t, entered, 20)
		for _, r := range s.db.all() {
			require.Zero(t, r.Crashes, "what had no answer was given back at once")
		}
		s.pass(time.Second) // a claim may be under way
		require.Equal(t, 3, p.enterable(3), "all slots are free again")
	})
}

// A slot that is reserved is taken, for claims and for other inserts, as long as the insert is
// under way.
func TestAReservedSlotIsTaken(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		var wanted []int
		s.config.Hooks = []worker.Hooks{{Pick: func(_ context.Context, e worker.PickEvent) { s.note(func() { wanted = append(wanted, e.Wanted) }) }}}
		s.run = takes(time.Hour)
		p := s.start()
		s.pass(time.Second)
		slots := p.Reserve([]*step.Spec{newcomer(), newcomer()})
		require.NotNil(t, slots)
		require.Equal(t, 1, p.enterable(1))
		require.Zero(t, p.enterable(2))
		for range 5 {
			s.db.insert()
		}
		wanted = nil
		p.Nudge("q")
		s.pass(100 * time.Millisecond)
		require.Equal(t, []int{1}, wanted)
		require.Zero(t, p.enterable(1))
		slots.Settle(nil, nil)
		s.pass(100 * time.Millisecond)
		require.Equal(t, []int{1, 2}, wanted)
		require.Len(t, s.witness.runs(), 3)
	})
}

// A claim that went on behind the last one says nothing about the front of the queue.
func TestNoInsertOvertakesWhatMayBeInFront(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.db.walk = 100 * time.Millisecond
		s.db.insert()
		p := s.start()
		s.pass(10 * time.Millisecond)
		s.db.insert()
		p.Nudge("q")
		s.pass(10 * time.Millisecond)
		require.Empty(t, s.left())
		require.Zero(t, p.enterable(1), "the next claim from the front has not come")
		s.pass(2 * time.Second)
		require.Equal(t, 1, p.enterable(1))
	})
}

// While work is known to wait, all goes by claims, in order.
func TestNoInsertOvertakesWhatWaits(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.run = takes(100 * time.Millisecond)
		p := s.start()
		s.pass(time.Second)
		require.Equal(t, 2, p.enterable(2))
		var waiting []*row
		for range 11 {
			waiting = append(waiting, s.db.insert())
		}
		p.Nudge("q")
		for i := range 50 {
			s.pass(10 * time.Millisecond)
			if len(s.left()) > 1 {
				require.Zero(t, p.enterable(1), "after %d", i)
			}
		}
		s.ended(time.Second)
		first, reserved := p.enter(1)
		s.pass(time.Second)
		require.True(t, reserved || len(s.witness.runs(first[0].ID)) == 1)
		require.Equal(t, 2, p.enterable(2))
		require.Len(t, s.witness.runs(waiting[10].ID), 1)
	})
}

// Work from elsewhere is found by polls. A process whose inserts take its slots all the time polls
// as one with work does, and lets the others go first as soon as it knows of them.
func TestInsertsDoNotStarveOthers(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.run = takes(time.Millisecond)
		p := s.start()
		s.pass(10 * time.Second)
		entered := 0
		stream := func(n int) {
			for range n {
				if _, reserved := p.enter(1); reserved {
					entered++
				}
				s.pass(5 * time.Millisecond)
			}
		}
		stream(400)
		require.Equal(t, 400, entered, "by no claim")
		foreign := s.db.insert()
		urgent, at := s.db.insert(priority(-1)), time.Now()
		stream(200)
		for _, r := range []*row{foreign, urgent} {
			runs := s.witness.runs(r.ID)
			require.Len(t, runs, 1)
			require.LessOrEqual(t, runs[0].from.Sub(at), 300*time.Millisecond, "PollMin, and not PollMax")
		}
	})
}

func TestWhatReservesNoSlot(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.batch.Run = func(context.Context, []step.Member) []step.Decided { return nil }
		s.batch.Most = 2
		p := s.player()
		require.Zero(t, p.enterable(1), "not started")
		p.Start()
		s.pass(time.Second)
		for name, edit := range map[string]func(*step.Spec){
			"queue":   func(x *step.Spec) { x.Queue = "of others" },
			"machine": func(x *step.Spec) { x.Machine = "of others" },
			"version": func(x *step.Spec) { x.Version = 2 },
			"step":    func(x *step.Spec) { x.Step = "unknown" },
			"batch":   func(x *step.Spec) { x.Step = "b" },
			"key":     func(x *step.Spec) { x.PartitionKey = "k" },
			"delay":   func(x *step.Spec) { x.Delay = 1 },
		} {
			x := newcomer()
			edit(x)
			require.Nil(t, p.Reserve([]*step.Spec{x}), name)
			require.Nil(t, p.Reserve([]*step.Spec{newcomer(), x}), name)
		}
		require.Nil(t, p.Reserve(nil))
		require.Equal(t, 1, p.enterable(1))
		s.db.mu.Lock()
		s.db.gates = store.Gates{{Name: "g", Queue: "q", Places: 1}}
		s.db.mu.Unlock()
		s.pass(2 * time.Second)
		require.Zero(t, p.enterable(1), "at a gate")
		s.db.mu.Lock()
		s.db.gates = nil
		s.db.mu.Unlock()
		s.pass(time.Minute)
		require.Equal(t, 1, p.enterable(1))
		s.db.mu.Lock()
		s.db.paused = []store.PausedQueue{{Queue: "q"}}
		s.db.mu.Unlock()
		s.pass(2 * time.Second)
		require.Zero(t, p.enterable(1), "paused")
	})
}

// An insert under way is awaited, and what it brings is given back like any claim that was not
// started. One that is answered after the end gives its claims back itself.
func TestDrainAndInsertsUnderWay(t *testing.T) {
	for name, latency := range map[string]time.Duration{"in time": 10 * time.Second, "too late": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				p := s.start()
				s.pass(time.Second)
				s.db.weather.latency = func(verb string) time.Duration {
					if verb == "insert" {
						return latency
					}
					return 0
				}
				var rows []*row
				over := make(chan struct{})
				go func() {
					rows, _ = p.enter(1)
					close(over)
				}()
				s.pass(time.Second)
				_, err := p.stop()
				require.NoError(t, err)
				if name == "in time" {
					synctest.Wait()
					require.NotEmpty(t, rows, "Stop waits for the insert")
				}
				require.Nil(t, p.Reserve([]*step.Spec{newcomer()}), "stopped")
				<-over
				r := s.db.look(rows[0].ID)
				require.Equal(t, fsm.StatusRunnable, r.status)
				require.Zero(t, r.Attempt+r.Crashes)
				require.Empty(t, s.witness.runs())
			})
		})
	}
}

// What an insert without an answer has claimed is given back, and not what one claims that is
// still under way.
func TestStraysOfInserts(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "insert" {
					return lostDone
				}
				return fair
			}
		})
		rows, reserved := p.enter(1)
		require.True(t, reserved)
		s.pass(100 * time.Millisecond)
		require.Equal(t, fsm.StatusDone, s.db.look(rows[0].ID).status, "given back, and claimed")
		require.Len(t, s.sent("release"), 1)
		s.change(func(w *weather) {
			w.answers = nil
			w.latency = func(verb string) time.Duration {
				if verb == "insert" {
					return time.Second
				}
				return 0
			}
		})
		go func() { rows, _ = p.enter(1) }()
		s.pass(600 * time.Millisecond) // it has taken effect
		p.Doubt("q")
		s.pass(100 * time.Millisecond)
		require.Len(t, s.sent("release"), 1)
		require.Empty(t, s.sent("held", time.Now().Add(-200*time.Millisecond)))
		pace.Sleep(t.Context(), time.Second)
		s.pass(time.Second)
		require.Len(t, s.witness.runs(rows[0].ID), 1)
		require.Len(t, s.sent("release"), 1)
		require.Equal(t, 3, p.enterable(3))
	})
}

// An insert whose answer the network swallows keeps no slot for longer than any statement: others
// run in it. What it has claimed runs in the end, once: its lease runs out meanwhile.
func TestAnInsertWithoutAnAnswerKeepsNoSlot(t *testing.T) {
	for name, what := range map[string]answer{"late": fair, "lost": lostDone} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				p := s.start()
				s.pass(time.Second)
				s.change(func(w *weather) {
					w.latency = func(verb string) time.Duration {
						if verb == "insert" {
							return 5 * time.Minute
						}
						return 0
					}
					w.answers = func(verb, _ string) answer {
						if verb == "insert" {
							return what
						}
						return fair
					}
				})
				var rows []*row
				over := make(chan struct{})
				go func() {
					rows, _ = p.enter(1)
					close(over)
				}()
				s.pass(time.Second)
				other := s.db.insert()
				p.Nudge("q")
				s.pass(statementTimeout - 3*time.Second)
				require.Equal(t, fsm.StatusRunnable, s.db.look(other.ID).status, "its slot is reserved")
				s.pass(10 * time.Second)
				require.Equal(t, fsm.StatusDone, s.db.look(other.ID).status)
				<-over
				s.pass(10 * time.Second)
				require.Equal(t, fsm.StatusDone, s.db.look(rows[0].ID).status)
				require.Len(t, s.witness.runs(rows[0].ID), 1)
				require.Equal(t, 1, p.enterable(1))
			})
		})
	}
}

// wake delivers a signal to a parked row in a process, as an engine does: it claims the row if
// there is a slot. It reports whether there was.
func (p *player) wake(r *row) (reserved bool) {
	slots := p.ReserveWoken()
	var claims []*step.Claim
	err := p.s.db.send(context.Background(), "signal", "q", func() error {
		r.status, r.eligible = fsm.StatusRunnable, time.Now()
		if slots == nil || !slices.Contains(slots.Waker().Queues, r.Queue) {
			return nil
		}
		p.s.db.tokens++
		r.status, r.worker, r.Token, r.lease = fsm.StatusExecuting, p.id, p.s.db.tokens, time.Now().Add(p.config.Lease)
		claim := r.Claim
		claim.FencingToken = r.Token
		claims = append(claims, &claim)
		return nil
	})
	if slots == nil {
		p.Nudge(r.Queue)
		return false
	}
	if err != nil {
		claims = nil
	}
	slots.Settle(claims, err)
	return true
}

// park adds a parked row.
func (s *scene) park(change ...func(*row)) *row {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	r := s.db.enter("", 0, false)
	r.status = fsm.StatusAwaitingSignal
	for _, edit := range change {
		edit(r)
	}
	return r
}

func TestASignalForAFreeSlotNeedsNoClaim(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		var picks []worker.PickEvent
		s.config.Hooks = []worker.Hooks{{Pick: func(_ context.Context, e worker.PickEvent) { s.note(func() { picks = append(picks, e) }) }}}
		s.run = takes(10 * time.Millisecond)
		s.config.Queues["other"] = worker.Queue{Concurrency: 1, PollMin: time.Second, PollMax: time.Second}
		p := s.start()
		s.pass(time.Minute)
		at := time.Now()
		picks = nil
		first, second := s.park(), s.park()
		require.True(t, p.wake(first))
		s.pass(time.Millisecond)
		require.Equal(t, []worker.PickEvent{{Queue: "q", Wanted: 1, Got: 1, Signalled: true}}, picks)
		require.True(t, p.wake(second), "by the other queue's slot, which is not for it")
		require.Equal(t, fsm.StatusRunnable, s.db.look(second.ID).status)
		p.Nudge("q")
		s.pass(time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(first.ID).status)
		require.Equal(t, fsm.StatusDone, s.db.look(second.ID).status)
		require.Len(t, s.witness.runs(first.ID), 1)
		require.NotEmpty(t, s.sent("claim", at))
		require.Equal(t, 1, p.enterable(1), "both slots are free again")
	})
}

// A process that signals the instances of others tries to claim ever more rarely, until a signal
// claims again.
func TestSignalsThatClaimNothing(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Minute)
		tried := func(n int) (tries int) {
			for range n {
				if p.wake(s.park(func(r *row) { r.Queue = "elsewhere" })) {
					tries++
				}
				s.pass(time.Second)
			}
			return tries
		}
		require.Equal(t, wakeMisses, tried(wakeMisses))
		require.LessOrEqual(t, tried(4*wakeEach), 4)
		for range wakeEach {
			p.wake(s.park())
			s.pass(time.Second)
		}
		require.Equal(t, wakeMisses, tried(wakeMisses))
	})
}

// What a signal without an answer has claimed is given back at once, and counts no crash.
func TestStraysOfSignals(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "signal" {
					return lostDone
				}
				return fair
			}
		})
		r := s.park()
		require.True(t, p.wake(r))
		s.pass(100 * time.Millisecond)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status, "given back, and claimed")
		require.Zero(t, s.db.look(r.ID).Crashes)
		require.Len(t, s.sent("release"), 1)
		require.Len(t, s.witness.runs(r.ID), 1)
		require.Equal(t, 2, p.enterable(2))
	})
}

// A stray whose row is locked for a moment does not wait for its lease, nor do claims wait for it.
func TestStraysThatSomebodyHasLocked(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.NoReaper = true
		r := s.db.insert(func(r *row) { r.PartitionKey = "k" })
		behind := s.db.insert(func(r *row) { r.PartitionKey = "k" })
		lost := false
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == claimedRows && !lost {
				lost = true
				s.db.rows[r.ID].held = time.Now().Add(3 * time.Second)
				return lostDone
			}
			return fair
		}
		s.start()
		s.pass(time.Second)
		require.True(t, lost)
		require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status)
		other := s.db.insert()
		s.pass(time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(other.ID).status)
		require.LessOrEqual(t, len(s.sent("held")), 1)
		s.pass(3 * time.Second)
		for _, one := range []*row{r, behind} {
			require.Equal(t, fsm.StatusDone, s.db.look(one.ID).status)
			require.Zero(t, s.db.look(one.ID).Crashes)
			require.Len(t, s.witness.runs(one.ID), 1)
		}
		began := time.Now()
		s.pass(time.Minute)
		require.Empty(t, s.sent("release", began))
	})
}

// A doubt that comes while the claim of an earlier one is under way is about rows that this one has
// not looked for: of a signal whose commit took effect only then, or that its next attempt had
// locked.
func TestADoubtDuringAClaimIsNotLost(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Second)
		s.change(func(w *weather) {
			w.latency = func(verb string) time.Duration {
				if verb == "claim" {
					return 400 * time.Millisecond
				}
				return 0
			}
		})
		begun := time.Now()
		p.Doubt("q")
		s.pass(100 * time.Millisecond)
		require.Len(t, s.sent("held", begun), 1)
		s.db.mu.Lock()
		r := s.db.enter(p.id, p.config.Lease, true)
		s.db.mu.Unlock()
		p.Doubt("q")
		s.pass(time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status, "given back, and claimed")
		require.Zero(t, s.db.look(r.ID).Crashes)
		require.Len(t, s.witness.runs(r.ID), 1)
	})
}

func TestWhatReservesNoSlotForASignal(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		p := s.player()
		require.Nil(t, p.ReserveWoken(), "not started")
		p.Start()
		s.pass(time.Second)
		slots := p.ReserveWoken()
		require.NotNil(t, slots)
		slots.Settle(nil, nil)
		s.pass(time.Millisecond)
		s.db.mu.Lock()
		s.db.gates = store.Gates{{Name: "g", Queue: "q", Places: 1}}
		s.db.mu.Unlock()
		s.pass(2 * time.Second)
		require.Nil(t, p.ReserveWoken(), "at a gate")
		s.db.mu.Lock()
		s.db.gates, s.db.paused = nil, []store.PausedQueue{{Queue: "q"}}
		s.db.mu.Unlock()
		s.pass(2 * time.Second)
		require.Nil(t, p.ReserveWoken(), "paused")
		_, err := p.stop()
		require.NoError(t, err)
		require.Nil(t, p.ReserveWoken(), "stopped")
	})
	for name, change := range map[string]func(*scene){
		"batch steps": func(s *scene) {
			s.batch.Run, s.batch.Most = func(context.Context, []step.Member) []step.Decided { return nil }, 2
		},
		"many queues": func(s *scene) {
			for _, name := range []string{"a", "b", "c", "d"} {
				s.config.Queues[name] = worker.Queue{Concurrency: 1, PollMin: time.Second, PollMax: time.Second}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				change(s)
				p := s.start()
				s.pass(time.Second)
				require.Nil(t, p.ReserveWoken())
			})
		})
	}
}
