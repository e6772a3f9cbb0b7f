package pairs

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var (
	word   = fsm.DeclareSignal[string]("word")
	letter = fsm.DeclareSignal[string]("letter")
)

// waitingAt returns half of the instances that await a signal at a step, so that others still wait
// when these have ended.
func (r *rig) waitingAt(step string) ([]fsm.RawInstance, error) {
	var waiting []fsm.RawInstance
	for i, err := range r.eng.All(r.ctx, engine.Query{Filter: engine.Filter{Machine: unit.Name(), Step: step, Status: []fsm.Status{fsm.StatusAwaitingSignal}}}) {
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, i)
	}
	return waiting[:(len(waiting)+1)/2], nil
}

// sendTo sends a signal to half of the instances that await it at a step.
func (r *rig) sendTo(step string, m fsm.Message) error {
	waiting, err := r.waitingAt(step)
	if err != nil {
		return err
	}
	for _, i := range waiting {
		if _, err := r.eng.Signal(r.ctx, i.ID, m); err != nil {
			return err
		}
	}
	return nil
}

// An instance that waits for a signal, which comes when everything waits.
var _ = register(feature{
	name: "signal",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("signal", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.Await("signal.got", v.State, word).Timeout(90 * 24 * time.Hour), nil
			}),
			r.step("signal.got", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				if _, ok, err := word.First(v); err != nil || !ok { // it was retried after a cancel, and waits again
					return v.Await("signal.got", v.State, word).Timeout(90 * 24 * time.Hour), err
				}
				return r.onward(v, v.State), nil
			}),
		}
	},
	serve: func(r *rig) error { return r.sendTo("signal.got", word.With("go")) },
	bound: func(l *engine.Limits) { l.Inbox++ }, // beside what another feature has sent
})

// The root's signal is kept for its key before it is there. To the others it is sent.
var _ = register(feature{
	name: "kept",
	prepare: func(r *rig) error {
		d, err := r.eng.Signal(r.ctx, fsm.Key("kept"), letter.With("early").DedupKey("once").KeepFor(7*24*time.Hour))
		if err == nil && !d.Kept {
			r.violate("a signal is not kept", "%+v", d)
		}
		return err
	},
	spec: func(_ *rig, s fsm.Spec, at state) fsm.Spec {
		if at.Kind == root {
			return s.Key("kept")
		}
		return s
	},
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("kept", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.Await("kept.got", v.State, letter), nil
			}),
			r.step("kept.got", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				text, ok, err := letter.First(v)
				if err != nil || !ok {
					return v.Await("kept.got", v.State, letter), err
				}
				if v.State.Kind == root && r.bump("kept") == 1 && text != "early" {
					r.violate("a kept signal is lost", "%s got %q", v.State.Path, text)
				}
				return r.onward(v, v.State), nil
			}),
		}
	},
	serve: func(r *rig) error { return r.sendTo("kept.got", letter.With("late")) },
})

// An instance that runs again without a counted attempt.
var _ = register(feature{
	name: "again",
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{r.step("again", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			s := v.State
			if s.Seen++; s.Seen <= 2 {
				return v.AgainWith(s, time.Minute), nil
			}
			return r.onward(v, s), nil
		})}
	},
})

// An instance that begins later, and goes on later.
var _ = register(feature{
	name: "timer",
	spec: func(_ *rig, s fsm.Spec, _ state) fsm.Spec { return s.After(time.Hour) },
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("timer", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.Next("timer.rang", v.State).After(24 * time.Hour), nil
			}),
			r.step("timer.rang", func(_ context.Context, v *visit) (fsm.Outcome, error) { return r.onward(v, v.State), nil }),
		}
	},
})

// An instance that ends unless a signal waits, which is there.
var _ = register(feature{
	name:  "unless",
	bound: func(l *engine.Limits) { l.Inbox++ }, // beside what another feature has sent
	steps: func(r *rig) []fsm.StepDef[state, int] {
		return []fsm.StepDef[state, int]{
			r.step("unless", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
				m := word.With("a late payment").DedupKey(fmt.Sprint("unless ", v.Visit))
				if _, err := engine.FromContext(ctx).Signal(ctx, v.ID, m); err != nil {
					return nil, err
				}
				return v.Done(-1).Unless("unless.more", word).With(v.State), nil
			}),
			r.step("unless.more", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				if _, ok, err := word.First(v); err != nil || !ok {
					r.violate("Unless goes on without its signal", "%s: %v", v.State.Path, err)
				}
				return r.onward(v, v.State), nil
			}),
		}
	},
})
