package pairs

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// graphNodes are the nodes of which the result of a graph is made.
var graphNodes = []string{"a", "b", "c", "d"}

// A graph: c waits for a and b, alarm for a failure of a, and d for the end of both.
var _ = register(feature{
	name: "graph",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("graph", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				rest := v.State.Left[1:]
				return v.ScheduleGraph("graph.end", v.State,
					r.node(v.State, "a", rest),
					r.node(v.State, "b", rest),
					r.node(v.State, "c", rest).After("a", "b"),
					r.node(v.State, "alarm", nil).AfterFailure("a"),
					r.node(v.State, "d", rest).AfterEnd("alarm").After("c")), nil
			}),
			r.step("graph.end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				s, found := v.State, map[string]fsm.Child[int]{}
				for _, c := range unit.Children(v) {
					if _, twice := found[c.Node]; twice {
						r.violate("a node is there twice", "%s of %s", c.Node, s.Path)
					}
					found[c.Node] = c
				}
				for _, name := range graphNodes {
					c, ok := found[name]
					if !ok {
						r.violate("a graph lacks a node", "%s of %s", name, s.Path)
						continue
					}
					result, err := c.Result()
					switch {
					case c.Status == fsm.StatusFailed:
						return v.Stop(fmt.Errorf("node %s: %s", name, c.Failure)), nil
					case err != nil:
						return nil, err
					}
					s.Sum += result
				}
				return r.end(v, s), nil
			}),
		}
	},
	worth: sumOf(len(graphNodes)),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 8) },
})

// A node that adds another one to its graph. An instance that is no node only goes on.
var _ = register(feature{
	name: "grow",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("grow", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				if v.State.Kind != node {
					return v.Next("grow.on", v.State), nil
				}
				name := "more " + v.State.Path
				return v.Next("grow.on", v.State).Add(fsm.Node(name, r.spec(beginning(v.State.Path+"/more", node, nil)))), nil
			}),
			r.step("grow.on", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.onward(v, v.State), nil }),
		}
	},
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 12) },
})
