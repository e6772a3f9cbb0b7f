package worker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

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
		s.config.Hooks = []Hooks{{Stale: func(context.Context, StaleEvent) { t.Error("nothing of it was lost") }}}
		s.run = takes(100 * time.Millisecond)
		p := s.player()
		p.flights.outside.heldMost = 2
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
		s.until(time.Minute, func() bool { return len(gaveWay()) > 0 }, "the room for held ends is half full")
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
