package pairs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// graphNodes are the nodes of which the result of a graph is made.
var graphNodes = []string{"a", "b", "c", "d"}

// A graph: c waits for a and b, alarm for a failure of a, and d for the end of both. The alarm
// takes the rest of the life as the others do, but its result is not counted.
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
					r.node(v.State, "alarm", rest).AfterFailure("a"),
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
						return v.Fail(fmt.Errorf("node %s: %s", name, c.Failure)), nil
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

// A graph that its root leaves with the first node that is done. The root then waits in another
// round for two months. Its nodes go on meanwhile.
var _ = register(feature{
	name: "left",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("left", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				rest := v.State.Left[1:]
				return v.ScheduleGraph("left.first", v.State,
					r.node(v.State, "a", rest),
					r.node(v.State, "b", rest),
					r.node(v.State, "c", rest).After("a", "b")).Quorum(1), nil
			}),
			r.step("left.first", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				s := v.State
				for _, c := range unit.Children(v) {
					if result, err := c.Result(); err == nil && len(c.Node) == 1 {
						s.Sum += result
						late := r.spec(beginning(s.Path+"/late", child, nil)).After(60 * 24 * time.Hour)
						return v.ScheduleChildren("left.end", s, late), nil
					}
				}
				return v.Fail(errors.New("no node is done")), nil
			}),
			r.step("left.end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				for _, c := range v.Children() {
					if c.Status == fsm.StatusFailed {
						return v.Fail(fmt.Errorf("child %d: %s", c.ID, c.Failure)), nil
					}
				}
				return r.end(v, v.State), nil
			}),
		}
	},
	worth: sumOf(1),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 3) },
})

// A graph that is over with its first failure. A node that was skipped since all is well is none.
var _ = register(feature{
	name: "failfast",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("failfast", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				rest := v.State.Left[1:]
				return v.ScheduleGraph("failfast.end", v.State,
					r.node(v.State, "a", rest),
					r.node(v.State, "b", rest),
					r.node(v.State, "alarm", nil).AfterFailure("a")).FailFast(), nil
			}),
			r.step("failfast.end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				s, failed, skipped := v.State, "", ""
				for _, c := range unit.Children(v) {
					result, err := c.Result()
					switch {
					case c.Failure == fsm.FailureSkipped:
						if c.Node != "alarm" {
							skipped = c.Node
						}
					case c.Status == fsm.StatusFailed:
						failed = fmt.Sprintf("node %s: %s", c.Node, c.Failure)
					case err == nil && (c.Node == "a" || c.Node == "b"):
						s.Sum += result
					}
				}
				switch left := v.Round().Left; {
				case failed != "":
					return v.Fail(errors.New(failed)), nil
				case left > 0:
					r.violate("FailFast ends a graph in which nothing has failed", "%s, %d are left", s.Path, left)
					return v.Fail(errors.New("nothing has failed")), nil
				case skipped != "":
					return v.Fail(errors.New("skipped: " + skipped)), nil
				}
				return r.end(v, s), nil
			}),
		}
	},
	worth: sumOf(2),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 3) },
})

// A node that adds three others to its graph, two of which a third one waits for. As the last
// feature of a life it adds them with its end. An instance that is no node only goes on.
var _ = register(feature{
	name: "grow",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("grow", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				s := v.State
				if s.Kind != node {
					return v.Next("grow.on", s), nil
				}
				more := func(n int) fsm.GraphNode {
					name := fmt.Sprint("more", n)
					return fsm.Node(s.Path+" "+name, r.spec(beginning(s.Path+"/"+name, node, nil)))
				}
				added := []fsm.GraphNode{more(1), more(2).After(s.Path + " more1"), more(3).Before(s.Path + " more2")}
				if len(s.Left) == 1 {
					return v.Done(s.Sum + stageWorth + 1).Add(added...), nil
				}
				return v.Next("grow.on", s).Add(added...), nil
			}),
			r.step("grow.on", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.onward(v, v.State), nil }),
		}
	},
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 24) },
	check: func(r *rig) error {
		if r.c.Fault == "month" && slices.Contains(r.c.Life, "left") { // of a graph that its root has left, the GC deletes nodes one by one
			return nil
		}
		rows, _ := r.pool.Query(r.ctx, `SELECT g.node, g.state -> 'life', c.n FROM gendurable.gen_durable g
			CROSS JOIN LATERAL (SELECT count(*) AS n FROM gendurable.gen_durable k WHERE k.parent_id = g.parent_id AND k.parent_round = g.parent_round
				AND starts_with(k.node, g.state ->> 'path' || ' more')) c
			WHERE g.status = 'done' AND g.state ->> 'kind' = 'node'`)
		var name string
		var life []string
		var n int
		_, err := pgx.ForEachRow(rows, []any{&name, &life, &n}, func() error {
			if taken(life, "grow") && n != 3 {
				r.violate("a decision is done without what it added", "%s has added %d of 3", name, n)
			}
			return nil
		})
		return err
	},
})
