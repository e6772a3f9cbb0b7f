package pairs

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// plain are the steps of a feature of the specs: one step, by which the result tells that the
// instance was there.
func plain(name string) func(r *rig) []fsm.StepDef[state, int] {
	return func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{r.step(name, func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.onward(v, v.State), nil })}
	}
}

// A partition key of all instances, and a correlation key of those that may have one: the root's,
// by its declaration unless another feature makes its spec.
var _ = register(feature{
	name:  "key",
	steps: plain("key"),
	spec: func(_ *rig, s fsm.Spec, at state) fsm.Spec {
		s = s.PartitionKey("lane")
		if at.Kind == root && s.Options().Key == "" {
			s = s.Key("key:root")
		}
		return s
	},
	check: func(r *rig) error {
		var most int
		err := r.pool.QueryRow(r.ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE partition_key IS DISTINCT FROM 'lane' AND fsm = 'unit'`).Scan(&most)
		if most > 0 {
			r.violate("an instance is without its partition key", "%d", most)
		}
		return err
	},
})

// The root and what it spawns are aside, but for nodes, which go where their root is.
var _ = register(feature{
	name:  "queue",
	steps: plain("queue"),
	spec: func(_ *rig, s fsm.Spec, at state) fsm.Spec {
		if at.Kind == node {
			return s
		}
		return s.Queue(aside)
	},
})

// A retention that is over at once.
var _ = register(feature{
	name:  "retain",
	steps: plain("retain"),
	spec: func(_ *rig, s fsm.Spec, _ state) fsm.Spec {
		return s.Retain(fsm.Retention{Done: time.Second, Failed: time.Second})
	},
})

// A window for the root, in which a second one is refused.
var _ = register(feature{
	name:  "window",
	steps: plain("window"),
	spec: func(_ *rig, s fsm.Spec, at state) fsm.Spec {
		if at.Kind == root {
			return s.Throttle("window", time.Hour)
		}
		return s
	},
	insert: func(r *rig, s fsm.Spec) (fsm.ID, error) {
		id, err := r.eng.Insert(r.ctx, s)
		if err != nil {
			return 0, err
		}
		if second, err := r.eng.Insert(r.ctx, s); !errors.Is(err, engine.ErrThrottled) && !errors.Is(err, engine.ErrDuplicate) {
			r.violate("a window lets a second one in", "%d, %v", second, err)
		}
		return id, nil
	},
})

// A gate with one place for all, and one for whole runs, wide enough for all that lives at a time.
var _ = register(feature{
	name: "gate",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{r.step("gate", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
			var without bool // its gate may also be another one
			err := r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM gendurable.gen_durable
				WHERE id = $1 AND status = 'executing' AND gate = 'tenants/one' AND place IS DISTINCT FROM 1)`, int64(v.ID)).Scan(&without)
			if without {
				r.violate("a step runs without the only place of its gate", "%s", v.State.Path)
			}
			return r.onward(v, v.State), err
		})}
	},
	prepare: func(r *rig) error {
		tenants, own := engine.Gate{Name: "tenants", Label: "tenant", Places: 1}, r.c.Seed%2 == 1
		if own { // the key has places, and its gate has none
			tenants.Places, tenants.Fair = 0, true
		}
		for _, g := range []engine.Gate{tenants, {Name: "runs", Label: "run", Places: 1000, Run: true}} {
			if _, err := r.eng.Admin().SetGate(r.ctx, g); err != nil {
				return err
			}
		}
		if own {
			_, err := r.eng.Admin().SetGatePlaces(r.ctx, "tenants/one", 1)
			return err
		}
		return nil
	},
	spec: func(_ *rig, s fsm.Spec, _ state) fsm.Spec { return s.Label("tenant", "one").Label("run", "all") },
	check: func(r *rig) error {
		gates, err := r.eng.Admin().Gates(r.ctx)
		for _, g := range gates {
			if (g.Name == "tenants" || g.Name == "runs") && (g.Taken > 0 || g.Waiting > 0) {
				r.violate("places are left", "%s: %d taken, %d wait", g.Name, g.Taken, g.Waiting)
			}
		}
		return err
	},
})

// A gate with a rate.
var _ = register(feature{
	name:  "rate",
	steps: plain("rate"),
	prepare: func(r *rig) error {
		_, err := r.eng.Admin().SetGate(r.ctx, engine.Gate{Name: "bank", Label: "api", Rate: engine.Rate{N: 4, Per: time.Hour}})
		return err
	},
	spec: func(_ *rig, s fsm.Spec, _ state) fsm.Spec { return s.Label("api", "bank") },
})

// A batch step.
var _ = register(feature{
	name: "batch",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{fsm.BatchStep("batch", func(_ context.Context, all []*visit) (outcomes []fsm.Outcome, err error) {
			for _, v := range all {
				outcome, err := r.strike(v.Context(), v, func(context.Context, *visit) (fsm.Outcome, error) { return r.onward(v, v.State), nil })
				if err != nil {
					outcome = v.Raise(err)
				}
				outcomes = append(outcomes, outcome)
			}
			return outcomes, nil
		}, fsm.Within(20*time.Millisecond))}
	},
})
