package work

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/worker"
)

// family inserts n children of a parent that waits for them, and whose row another session holds.
func family(s *scene, n int) (parent int64, children []int64) {
	parent = s.db.insert(func(r *row) { r.status, r.pending, r.held = fsm.StatusAwaitingChildren, n, forever() }).ID
	for range n {
		children = append(children, s.db.insert(child(parent)).ID)
	}
	return parent, children
}

// tries counts how often ends have been sent that do not wait for their rows.
func (s *scene) tries() (n int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, sent := range s.db.commits {
		if !sent.slow {
			n += len(sent.parents)
		}
	}
	return n
}

// However many ends wait for a held parent, only a few at a time try, and all follow soon after the
// first that succeeds.
func TestEndsThatWaitForOneParentCostLittle(t *testing.T) {
	const n = 300
	play(t, n, func(t *testing.T, s *scene) {
		parent, children := family(s, n)
		s.start()
		s.pass(10 * time.Second)
		before := s.tries()
		s.pass(time.Minute)
		most := scouts * int(time.Minute/heldLate)
		require.LessOrEqual(t, s.tries()-before, most+scouts)
		require.Greater(t, s.tries()-before, most/4, "they do not notice that the row is free")

		s.hold(forever(), children[:scouts+1]...) // as many as try at a time have their own rows held, and one more
		s.hold(time.Time{}, parent)
		s.until(4*time.Second, func() bool { return len(s.left()) == 1+scouts+1 }, "they do not follow")
		s.hold(time.Time{}, children...)
		s.ended(time.Minute)
	})
}

// Children of a held parent that begin when there is a crowd go back, and leave the slots
// to others. Each comes again until its parent is free.
func TestChildrenOfAHeldParentGiveWay(t *testing.T) {
	play(t, 5, func(t *testing.T, s *scene) {
		parent, children := family(s, 300)
		p := s.player()
		p.flights.outside.heldMost, p.flights.outside.crowdedFrom = 100, 50
		p.Start()
		s.pass(10 * time.Second)
		held := p.Activity().Queues[0].Held
		require.GreaterOrEqual(t, held, 50)
		require.Less(t, held, 100, "the room is full")
		othersGoOn(s, p)
		s.hold(time.Time{}, parent)
		s.ended(crowdMost + time.Minute)
		for _, id := range children {
			outcomes := s.db.look(id).outcomes
			require.Len(t, s.witness.runs(id), 1, "a child that gave way had begun: %v", outcomes)
		}
	})
}

// A child that gives way to the ends that wait for its parent has not begun, and its outcome says
// so. Once the parent is free it runs, and has begun.
func TestAChildThatGivesWayHasNotBegun(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		const kids = 8
		parent := s.db.insert(func(r *row) { r.status, r.pending = "awaiting_children", kids })
		var ids []int64
		for range kids {
			ids = append(ids, s.db.insert(child(parent.ID), func(r *row) { r.Node = "n" }).ID)
		}
		s.config.Hooks = []worker.Hooks{{Stale: func(context.Context, worker.StaleEvent) { t.Error("nothing of it was lost") }}}
		s.run = takes(100 * time.Millisecond)
		p := s.player()
		p.flights.outside.heldMost, p.flights.outside.crowdedFrom = 2, 1
		s.hold(forever(), parent.ID)
		p.Start()
		gaveWay := func() (some []int64) {
			for _, id := range ids {
				if slices.Contains(s.db.look(id).outcomes, step.Again) {
					some = append(some, id)
				}
			}
			return some
		}
		s.until(time.Minute, func() bool { return len(gaveWay()) > 0 }, "there is a crowd")
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "commit" {
					return lostDone
				}
				return fair
			}
		})
		s.pass(40 * time.Second) // all come again, and give way without an answer
		s.change(func(w *weather) { w.answers = nil })
		waiting := gaveWay()
		for _, id := range waiting {
			require.Empty(t, s.witness.runs(id), "its step was not called")
			require.False(t, s.db.look(id).begun, "its outcome says so")
		}
		s.hold(time.Time{}, parent.ID)
		s.ended(2 * time.Minute)
		for _, id := range waiting {
			require.Len(t, s.witness.runs(id), 1)
			require.True(t, s.db.look(id).begun)
		}
	})
}

// However many parents are held, each with one child, their children leave the slots to others, and
// as few try at a time as room is for. None runs twice.
func TestChildrenOfManyHeldParentsGiveWay(t *testing.T) {
	const crowd = 50
	n := tier.Size(t, "HELD", 200, 1000, 1000)
	for _, slots := range []int{1, 5} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			play(t, slots, func(t *testing.T, s *scene) {
				var parents, children []int64
				for range n {
					parent, child := family(s, 1)
					parents, children = append(parents, parent), append(children, child...)
				}
				p := s.player()
				p.flights.outside.crowdedFrom = crowd
				p.Start()
				s.pass(30 * time.Second) // all have had a turn
				othersGoOn(s, p)
				held := p.Activity().Queues[0].Held
				require.GreaterOrEqual(t, held, crowd)
				require.LessOrEqual(t, held, crowd+(1+committingEach)*slots, "those that had begun by then")
				s.hold(time.Time{}, parents...)
				s.ended(time.Duration(n)*turnEach + crowdMost + time.Minute)
				for _, id := range children {
					require.Len(t, s.witness.runs(id), 1)
				}
				require.Zero(t, p.flights.outside.held.Load()+p.flights.outside.bytes.Load())
			})
		})
	}
}

// Parents whose streams have held children give way, too: they look again later, and the few that
// waited outside as well.
func TestStreamsOfManyHeldChildrenGiveWay(t *testing.T) {
	const crowd = 50
	n := tier.Size(t, "HELD", 200, 1000, 1000)
	play(t, 3, func(t *testing.T, s *scene) {
		s.onDemand = true
		var parents, children []int64
		for range n {
			parent := s.db.insert(func(r *row) { r.Round = -1 }).ID
			child := s.db.insert(child(parent), func(r *row) { r.status, r.held = fsm.StatusDone, forever() }).ID
			parents, children = append(parents, parent), append(children, child)
		}
		p := s.player()
		p.flights.outside.crowdedFrom = crowd
		p.Start()
		s.pass(time.Minute)
		for _, id := range parents {
			require.Empty(t, s.witness.runs(id))
		}
		othersGoOn(s, p)
		require.LessOrEqual(t, p.Activity().Queues[0].Held, crowd/streamCosts+3)
		s.hold(time.Time{}, children...)
		s.ended(time.Duration(n)*turnEach + crowdMost + time.Minute)
		for _, id := range parents {
			require.Len(t, s.witness.runs(id), 1)
		}
	})
}

// A look whether a parent is free that fails keeps no child from its step.
func TestALookForTheParentThatFailsKeepsNobody(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		parent, _ := family(s, 1)
		p := s.player()
		p.flights.outside.crowdedFrom = 1
		p.Start()
		s.until(time.Minute, func() bool { return p.flights.outside.crowded(p.since(), 1) }, "there is a crowd")
		s.change(func(w *weather) {
			w.instead = func(verb, _ string, _ []int64) error {
				if verb == "end is free" {
					return refusal("42501")
				}
				return nil
			}
		})
		other := s.db.insert(child(s.db.insert(func(r *row) { r.status, r.pending = fsm.StatusAwaitingChildren, 1 }).ID))
		p.Nudge("q")
		s.until(time.Second, func() bool { return s.db.look(other.ID).terminal() }, "a look that fails keeps it")
		s.hold(time.Time{}, parent)
		s.ended(time.Minute)
	})
}

// othersGoOn requires that others of the queue end soon.
func othersGoOn(s *scene, p *player) {
	for range 20 {
		other := s.db.insert()
		p.Nudge("q")
		s.until(2*time.Second, func() bool { return s.db.look(other.ID).terminal() }, "the queue has stopped")
	}
}
