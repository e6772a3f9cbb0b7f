package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// MaxPlan bounds how many instances one [Plan] may hold.
	MaxPlan = 1_000_000
	// planSample is how many instances a plan shows.
	planSample = 20
	// bulkBatch is how many instances one transaction of Apply changes.
	bulkBatch = 200
	// bulkErrors is how many errors Apply joins.
	bulkErrors = 10
)

// Bulk plans a verb for the instances that a filter selects and the verb applies to, and changes
// nothing. The zero Filter selects nothing; Filter.All selects everything. Bulk reads the whole
// table, in pages, unless the Filter has a Key, a Parent, Labels or the one status executing, and
// the index of that finds less than 20,000.
//
// Errors: a *[VerbError], also for more than MaxPlan instances.
func (a *Admin) Bulk(ctx context.Context, verb Verb, f Filter) (plan *Plan, err error) {
	defer a.engine.explain(ctx, toRead("gen_durable"), &err)
	f.Within = a.and(f.Within)
	criteria, some, err := bulkCriteria(verb, &f)
	if err != nil {
		return nil, err
	}
	p := &Plan{Verb: verb, Sample: []fsm.RawInstance{}, admin: a, filter: criteria}
	if !some && !f.All {
		return p, nil
	}
	err = a.engine.patiently(ctx, task{doing: "select instances"}, func() error {
		p.ids, err = a.engine.reads.Select(ctx, store.Verb(verb), &criteria, MaxPlan)
		return err
	})
	if most, over := errors.AsType[*store.TooManyError](err); over {
		return nil, &VerbError{verb, "Filter", fmt.Errorf("selects %w", most)}
	}
	if err != nil {
		return nil, err
	}
	p.Matched = int64(len(p.ids))
	err = a.engine.patiently(ctx, task{doing: "read a plan's sample"}, func() error {
		p.Sample, err = a.engine.reads.GetMany(ctx, p.ids[:min(len(p.ids), planSample)])
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// bulkCriteria checks a verb and a filter. some reports whether there is any criterion.
func bulkCriteria(verb Verb, f *Filter) (c store.Filter, some bool, err error) {
	if !slices.Contains([]Verb{VerbCancel, VerbRetry, VerbRunNow, VerbReschedule, VerbPause, VerbResume, VerbEdit, VerbRewind, VerbRestart}, verb) {
		return c, false, &VerbError{verb, "verb", fmt.Errorf("%.80q is no verb of Bulk: use one from VerbCancel to VerbRestart", string(verb))}
	}
	c, some, err = criteria(f)
	if bad, ok := errors.AsType[*QueryError](err); ok {
		err = &VerbError{verb, "Filter." + bad.Field, bad.Err}
	}
	return c, some, err
}

// Plan is a dry run that can be carried out. It holds the ids that Bulk found; Apply touches no
// others.
type Plan struct {
	Verb    Verb              `json:"verb"`
	Matched int64             `json:"matched"`
	Sample  []fsm.RawInstance `json:"sample"` // the first twenty, by id

	admin  *Admin
	filter store.Filter
	ids    []int64
}

// Applied says what [Plan.Apply] did.
type Applied struct {
	Changed     int64 `json:"changed"`
	Descendants int64 `json:"descendants"` // that were cancelled or restarted, too
	Skipped     int64 `json:"skipped"`     // did not match the filter any more, or the verb did not apply any more
	Failed      int64 `json:"failed"`      // could not be changed; the error says why, of the first ten
}

// Apply carries the plan out in transactions of up to 200 instances; with Descendants, and of
// VerbRestart, each instance has a separate transaction. It skips instances that no longer match.
// It passes over those that it cannot change (another instance has the key by now, or the row
// stays locked for more than 2 s) and reports them at the end. It waits for the end of other
// faults until ctx ends. Applied counts also if there is an error. Apply may be called again, and
// does the rest. A plan of VerbReschedule needs the option [At], one of VerbEdit [Changing], one
// of VerbRewind [ToStep].
//
// Errors: a *[VerbError]; a *[DuplicateError] and others, joined.
func (p *Plan) Apply(ctx context.Context, options ...VerbOption) (applied Applied, err error) {
	defer p.admin.engine.explain(ctx, toOperate, &err)
	o, err := scope{}.newOrder(ctx, p.Verb, options) // the bounds of the Admin are in the filter
	if err != nil {
		return Applied{}, err
	}
	if o.Seen != nil {
		return Applied{}, &VerbError{p.Verb, "IfUnchanged", errors.New("it compares one instance with an earlier read, and a plan has many")}
	}
	if o.within != nil {
		return Applied{}, &VerbError{p.Verb, "Within", errors.New("a plan has the bounds of its Filter: set Filter.Within")}
	}
	o.Filter = p.filter
	size := bulkBatch
	if o.Descendants || o.Verb == store.Restart {
		size = 1
	}
	b := bulk{admin: p.admin, order: o}
	for some := range slices.Chunk(p.ids, size) {
		if err := b.apply(ctx, some); err != nil {
			return b.applied, errors.Join(append(b.errs, err)...)
		}
		if o.watch != nil {
			o.watch(b.applied)
		}
	}
	return b.applied, errors.Join(b.errs...)
}

// Watching is an option of [Plan.Apply], which calls seen after each 200 instances, or with
// Descendants after each one, with what it has done so far, in the caller's goroutine. Other verbs
// ignore it.
func Watching(seen func(Applied)) VerbOption { return func(o *order) { o.watch = seen } }

type bulk struct {
	admin   *Admin
	order   *order
	applied Applied
	errs    []error
}

// apply changes one batch or, if one instance is in the way of the others, each instance by
// itself. Its error ends the whole.
func (b *bulk) apply(ctx context.Context, ids []int64) error {
	for n := 1; ; n++ {
		done, err := b.operate(ctx, ids)
		switch {
		case err == nil:
			b.count(done)
			return nil
		case errors.Is(err, ErrUnknown), store.Classify(err) == store.FaultConfig, ctx.Err() != nil:
			return err
		case !b.inTheWay(err):
			if !pause(ctx, n) {
				return err
			}
			continue
		case len(ids) == 1:
			b.failed(fsm.ID(ids[0]), err)
			return nil
		}
		for _, id := range ids {
			if err := b.apply(ctx, []int64{id}); err != nil {
				return err
			}
		}
		return nil
	}
}

// operate carries the order out on a batch.
func (b *bulk) operate(ctx context.Context, ids []int64) (done store.Operated, err error) {
	if b.order.change == nil && b.order.to == nil {
		return b.admin.operate(ctx, ids, b.order)
	}
	counted := b.applied
	errs := b.errs
	if ids, err = b.prepare(ctx, ids); err == nil && len(ids) > 0 {
		done, err = b.admin.operate(ctx, ids, b.order)
	}
	if err != nil {
		b.applied, b.errs = counted, errs // the batch is tried again
	}
	return done, err
}

// failed counts an instance that could not be changed.
func (b *bulk) failed(id fsm.ID, err error) {
	b.applied.Failed++
	if len(b.errs) < bulkErrors {
		b.errs = append(b.errs, fmt.Errorf("instance %d: %w", id, err))
	}
}

// inTheWay reports whether an error is one instance's own.
func (b *bulk) inTheWay(err error) bool {
	return store.IsUniqueViolation(err) || store.IsLockTimeout(err) || store.Classify(err) == store.FaultData || isAnswer(err)
}

func (b *bulk) count(done store.Operated) {
	for _, c := range done.Changed {
		if c.Asked {
			b.applied.Changed++
		} else {
			b.applied.Descendants++
		}
	}
	for _, r := range done.Refused {
		if errors.Is(r.Why, store.ErrOutside) || errors.Is(r.Why, store.ErrTooWide) { // nothing has changed about it
			b.failed(fsm.ID(r.ID), r.Why)
			continue
		}
		b.applied.Skipped++
	}
}
