package pairs

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A round that its parent leaves with the first child that is done, and whose rest is cancelled. A
// Restart waits for all of them.
var _ = register(feature{
	name: "rest",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("rest", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.ScheduleChildren("rest.end", v.State, r.children(v.State, 3)...).Quorum(1).CancelRest(), nil
			}),
			r.step("rest.end", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.first(v) }),
		}
	},
	worth: sumOf(1),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 3) },
	serve: func(r *rig) error { return r.rested("rest.end") },
})

// A graph that ends with a value that any of two nodes gives, as by the CancelRest of package dag:
// it wakes at an end, and once the value is there it waits for a time that has passed, so that the
// rest is cancelled.
var _ = register(feature{
	name: "early",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("early", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				rest := v.State.Left[1:]
				return v.ScheduleGraph("early.wait", v.State,
					r.node(v.State, "a", rest),
					r.node(v.State, "b", rest),
					r.node(v.State, "c", rest).After("a", "b"),
					r.node(v.State, "alarm", nil).AfterFailure("a")).Quorum(1), nil
			}),
			r.step("early.wait", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				left := v.Round().Left
				if left == 0 {
					return r.first(v)
				}
				for _, c := range v.Children() {
					if c.Status == fsm.StatusDone && ofValue(c.Node) {
						return v.Rejoin("early.end", v.State).Until(v.InsertedAt).CancelRest(), nil
					}
				}
				return v.Rejoin("early.wait", v.State).Race().Quorum(left), nil
			}),
			r.step("early.end", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.first(v) }),
		}
	},
	worth: sumOf(1),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 4) },
	serve: func(r *rig) error { return r.rested("early.end") },
})

// ofValue reports whether the value of an early graph is of a node, and not an alarm, or one that a
// node has added.
func ofValue(node string) bool { return node == "a" || node == "b" || node == "c" }

// first ends an instance with the result of the first child that is done, or of such a node.
func (r *rig) first(v *visit) (fsm.Outcome, error) {
	s, why := v.State, errors.New("no child is done")
	for _, c := range unit.Children(v) {
		switch result, err := c.Result(); {
		case c.Node != "" && !ofValue(c.Node), c.Status != fsm.StatusDone:
		case err != nil:
			return nil, err
		default:
			s.Sum += result
			return r.end(v, s), nil
		}
	}
	if left := v.Round().Left; left > 0 {
		r.violate("a quorum is over before it is reached, or cannot be", "%s, %d are left", s.Path, left)
	}
	return v.Fail(why), nil
}

// rested finds children that go on though their parent has left them at a step, and is done. One
// that an operator has retried has counted before, and runs for itself.
func (r *rig) rested(step string) error {
	r.unheld() // the sweep passes by what a stranger holds
	if _, err := r.run(mostTakes); err != nil {
		return err
	}
	rows, _ := r.pool.Query(r.ctx, `SELECT format('%s of %s is %s', k.id, g.id, k.status) FROM gendurable.gen_durable g
		JOIN gendurable.gen_durable k ON k.parent_id = g.id AND k.parent_round = g.round
		WHERE g.status = 'done' AND g.step = $1 AND k.finished_at IS NULL AND k.joined IS NULL`, step)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, f := range found {
		r.violate("the rest of a join goes on", "%s", f)
	}
	return err
}

// unserved is a machine that no worker knows.
var unserved = fsm.Declare[state, int]("stranger")

// strange returns a node of that machine, with what the features say of specs.
func (r *rig) strange(of state, name string) fsm.GraphNode {
	at := beginning(of.Path+"/"+name, node, nil)
	out := unserved.New(at)
	for _, f := range r.features {
		if f.spec != nil {
			out = f.spec(r, out, at)
		}
	}
	return fsm.Node(name, r.sided(out, at))
}

// A graph with a node of a machine that no worker knows, for which another one waits. It is skipped
// if all goes well, without a worker. If it is to run, an operator cancels it.
var _ = register(feature{
	name: "stranger",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("stranger", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				rest := v.State.Left[1:]
				return v.ScheduleGraph("stranger.end", v.State,
					r.node(v.State, "a", rest),
					r.strange(v.State, "x").AfterFailure("a"),
					r.node(v.State, "b", rest).AfterEnd("x").After("a")), nil
			}),
			r.step("stranger.end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				s := v.State
				for _, c := range unit.Children(v) {
					if c.Node == "x" {
						if c.Status != fsm.StatusFailed {
							r.violate("a node ran of a machine that nobody knows", "%d is %s", c.ID, c.Status)
						}
						continue
					}
					switch result, err := c.Result(); {
					case c.Node != "a" && c.Node != "b": // that a node has added
					case c.Status == fsm.StatusFailed:
						return v.Fail(fmt.Errorf("node %s: %s", c.Node, c.Failure)), nil
					case err != nil:
						return nil, err
					default:
						s.Sum += result
					}
				}
				return r.end(v, s), nil
			}),
		}
	},
	worth: sumOf(2),
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 3) },
	serve: func(r *rig) error {
		var waiting []fsm.ID
		for i, err := range r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Machine: unserved.Name(), Status: []fsm.Status{fsm.StatusRunnable}}}) {
			if err != nil {
				return err
			}
			waiting = append(waiting, i.ID)
		}
		for _, id := range waiting {
			if _, err := r.eng.Admin().Cancel(r.ctx, id); err != nil && !errors.Is(err, engine.ErrConflict) {
				return err
			}
		}
		return nil
	},
})

// crowdOf is how many children a crowd has, by the result of each: many, if these are no parents of
// many others themselves.
func crowdOf(rest int) int {
	if rest == 1 || rest == 1+stageWorth {
		return 12
	}
	return 3
}

// A round of many children. The fault "held parent" holds their parent when one of them ends.
var _ = register(feature{
	name: "crowd",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		size := func(v *visit) int { return crowdOf(worth(v.State.Left[1:])) }
		return []fsm.StepDef[state, int]{
			r.step("crowd", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.ScheduleChildren("crowd.end", v.State, r.children(v.State, size(v))...), nil
			}),
			r.step("crowd.end", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.joined(v, size(v)) }),
		}
	},
	worth: func(rest int) int { return sumOf(crowdOf(rest))(rest) },
	bound: func(l *engine.Limits) { l.Children = max(l.Children, 12) },
})
