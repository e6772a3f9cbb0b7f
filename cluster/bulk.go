package cluster

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// planSample is how many instances a plan shows.
const planSample = 20

// Plan says which instances of all places a verb would change, and can carry the verb out.
type Plan struct {
	Verb    engine.Verb       `json:"verb"`
	Matched int64             `json:"matched"`
	Sample  []fsm.RawInstance `json:"sample"`          // up to twenty, taken from the places in turn
	Lacks   []*PlaceError     `json:"lacks,omitempty"` // the places that the plan does not cover, and why

	parts []part
}

type part struct {
	place *place
	plan  *engine.Plan
}

// Bulk plans a verb for the instances of all places that a filter selects, as [engine.Admin.Bulk]
// does at each. The plan lists in Lacks the places that did not answer within Patience.
//
// Errors: a *[engine.VerbError] for bad input; if no place has answered, the *[PlaceError] of each,
// joined.
func (a *Admin) Bulk(ctx context.Context, verb engine.Verb, f engine.Filter) (*Plan, error) {
	answers, err := eachLong(ctx, a.cluster, a.cluster.places, func(e *engine.Engine) (*engine.Plan, error) {
		return e.Admin().Bulk(ctx, verb, f)
	})
	if err != nil {
		return nil, err
	}
	errs := failed(answers)
	if len(errs) == len(answers) {
		return nil, errors.Join(errs...)
	}
	plan := &Plan{Verb: verb, Sample: []fsm.RawInstance{}, Lacks: PlaceErrors(errors.Join(errs...))}
	for _, at := range answers {
		if at.err == nil {
			plan.Matched += at.value.Matched
			plan.parts = append(plan.parts, part{at.place, at.value})
		}
	}
	for n := range planSample {
		for _, at := range plan.parts {
			if n < len(at.plan.Sample) && len(plan.Sample) < planSample {
				plan.Sample = append(plan.Sample, at.plan.Sample[n])
			}
		}
	}
	return plan, nil
}

// Apply carries the plan out at its places side by side, each as [engine.Plan.Apply] does, until
// ctx ends, and adds up what they did. It may be called again, and then does what is left. It calls
// the function of the option [engine.Watching] with what one place has done, and may do so for
// several places at a time.
//
// Errors: a *[engine.VerbError] for bad input; the *[PlaceError] of each place that failed, joined.
func (p *Plan) Apply(ctx context.Context, options ...engine.VerbOption) (applied engine.Applied, err error) {
	plans := map[*place]*engine.Plan{}
	places := make([]*place, len(p.parts))
	for i, at := range p.parts {
		places[i], plans[at.place] = at.place, at.plan
	}
	answers := side(places, func(at *place) (engine.Applied, error) {
		done, err := plans[at].Apply(ctx, options...)
		return done, at.at(err)
	})
	for _, a := range answers {
		if e := PlaceErrors(a.err); len(e) > 0 && isInput(e[0].Err) && a.value == (engine.Applied{}) {
			return engine.Applied{}, e[0].Err
		}
	}
	for _, a := range answers {
		applied.Changed += a.value.Changed
		applied.Descendants += a.value.Descendants
		applied.Skipped += a.value.Skipped
		applied.Failed += a.value.Failed
	}
	return applied, errors.Join(failed(answers)...)
}
