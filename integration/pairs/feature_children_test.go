package pairs

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A round of children that is joined when all have ended.
var _ = register(feature{
	name: "join",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.ScheduleChildren("join.end", v.State, r.children(v.State, 2)...), nil
			}),
			r.step("join.end", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.joined(v, 2) }),
		}
	},
	worth: sumOf(2),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 2) },
})

// A round whose parent goes on with each end, and waits for the next one by a Rejoin.
var _ = register(feature{
	name: "race",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("race", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.ScheduleChildren("race.next", v.State, r.children(v.State, 3)...).Race(), nil
			}),
			r.step("race.next", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				if v.Round().Left > 0 {
					s := v.State
					s.Shown = []fsm.ID{}
					for _, c := range v.Children() {
						if c.Status.Terminal() {
							s.Shown = append(s.Shown, c.ID)
						}
					}
					return v.Rejoin("race.next", s).Race(), nil
				}
				return r.joined(v, 3)
			}),
		}
	},
	worth: sumOf(3),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 3) },
})

// A round whose ends the parent is shown in portions.
var _ = register(feature{
	name: "stream",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("stream", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.ScheduleChildren("stream.next", v.State, r.children(v.State, 3)...).Stream(2), nil
			}),
			r.step("stream.next", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				s := v.State
				for _, c := range unit.Children(v) {
					s.Seen++
					result, err := c.Result()
					switch {
					case c.Status == fsm.StatusFailed:
						s.Lost = fmt.Sprintf("child %d: %s", c.ID, c.Failure)
					case err != nil:
						return nil, err
					}
					s.Sum += result
				}
				switch {
				case v.Round().Left > 0:
					return v.Rejoin("stream.next", s).Stream(2), nil
				case s.Seen != 3:
					r.violate("a stream shows a child twice, or never", "%s was shown %d of 3", s.Path, s.Seen)
				case s.Lost != "":
					return v.Fail(fmt.Errorf("%s", s.Lost)), nil
				}
				return r.end(v, s), nil
			}),
		}
	},
	worth: sumOf(3),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 3) },
})
