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

// Filter selects instances: all criteria that are given must hold. The zero Filter selects nothing; All makes it select everything.
type Filter struct {
	Machine   string
	Version   int // 0: any
	Step      string
	Queue     string
	Status    []fsm.Status  // one of these
	Failure   []fsm.Failure // one of these; only failed instances have one
	KeyPrefix string        // of the correlation key
	All       bool          // also where no criterion is given
}

// Bulk looks which instances a filter selects and a verb applies to, and changes nothing. It reads the whole table, in pages.
//
// Errors: a *[VerbError], also for more than MaxPlan instances.
func (a *Admin) Bulk(ctx context.Context, verb Verb, f Filter) (*Plan, error) {
	criteria, some, err := f.criteria(verb)
	if err != nil {
		return nil, err
	}
	p := &Plan{Verb: verb, admin: a, filter: criteria}
	if !some && !f.All {
		return p, nil
	}
	p.ids, err = a.engine.store.Select(ctx, store.Verb(verb), &criteria, MaxPlan)
	if most, over := errors.AsType[*store.TooManyError](err); over {
		return nil, &VerbError{verb, "Filter", fmt.Errorf("selects %w", most)}
	}
	if err != nil {
		return nil, err
	}
	p.Matched = int64(len(p.ids))
	sample, err := a.engine.store.GetMany(ctx, p.ids[:min(len(p.ids), planSample)])
	if err != nil {
		return nil, err
	}
	for _, row := range sample {
		p.Sample = append(p.Sample, raw(row))
	}
	return p, nil
}

// criteria checks a filter. some: there is a criterion.
func (f Filter) criteria(verb Verb) (c store.Filter, some bool, err error) {
	refuse := func(field, format string, args ...any) (store.Filter, bool, error) {
		return store.Filter{}, false, &VerbError{verb, field, fmt.Errorf(format, args...)}
	}
	if !slices.Contains([]Verb{VerbCancel, VerbRetry, VerbRunNow, VerbPause, VerbResume}, verb) {
		return refuse("verb", "%.80q is none that Bulk knows", string(verb))
	}
	for _, name := range []struct{ field, text string }{
		{"Filter.Machine", f.Machine}, {"Filter.Step", f.Step}, {"Filter.Queue", f.Queue}, {"Filter.KeyPrefix", f.KeyPrefix},
	} {
		if name.text == "" {
			continue
		}
		some = true
		if err := checkName(name.text, fsm.MaxNameBytes); err != nil {
			return refuse(name.field, "%w", err)
		}
	}
	if f.Version < 0 {
		return refuse("Filter.Version", "%d, at least 1", f.Version)
	}
	c = store.Filter{Machine: f.Machine, Version: f.Version, Step: f.Step, Queue: f.Queue, KeyPrefix: f.KeyPrefix}
	for i, s := range f.Status {
		if !slices.Contains(fsm.Statuses(), s) {
			return refuse(fmt.Sprintf("Filter.Status[%d]", i), "%.80q is no status", string(s))
		}
		c.Statuses = append(c.Statuses, string(s))
	}
	for i, k := range f.Failure {
		if !slices.Contains(failures, k) {
			return refuse(fmt.Sprintf("Filter.Failure[%d]", i), "%.80q is no kind of failure", string(k))
		}
		c.Failures = append(c.Failures, string(k))
	}
	return c, some || f.Version > 0 || len(f.Status)+len(f.Failure) > 0, nil
}

var failures = []fsm.Failure{
	fsm.FailureStopped, fsm.FailureError, fsm.FailureExhausted, fsm.FailureCrashes, fsm.FailureCancelled, fsm.FailureDeadline,
}

// Plan is a dry run that can be carried out. It holds the ids that it found: Apply touches no others.
type Plan struct {
	Verb    Verb
	Matched int64
	Sample  []fsm.RawInstance // the first twenty, by id

	admin  *Admin
	filter store.Filter
	ids    []int64
}

// Applied is what a Plan did.
type Applied struct {
	Changed     int64
	Descendants int64 // that were cancelled, too
	Skipped     int64 // did not match the filter any more, or the verb did not apply any more
	Failed      int64 // could not be changed; the error says why, of the first ten
}

// Apply carries the plan out in transactions of up to 200 instances; with Descendants each has its own. What no longer matches is skipped;
// what cannot be changed (a key that is another's by now, a row that somebody keeps locked for more than 2 s) is passed over, and reported
// at the end. Other faults are waited out until ctx ends. What was applied is counted also when there is an error; Apply may be called
// again, and does the rest.
//
// Errors: *[VerbError]; *[DuplicateError] and others, joined.
func (p *Plan) Apply(ctx context.Context, options ...VerbOption) (Applied, error) {
	o, err := newOrder(p.Verb, options)
	if err != nil {
		return Applied{}, err
	}
	if o.Seen != nil {
		return Applied{}, &VerbError{p.Verb, "IfUnchanged", errors.New("is about one instance")}
	}
	o.Filter = p.filter
	size := bulkBatch
	if o.Descendants {
		size = 1
	}
	b := bulk{admin: p.admin, order: o}
	for some := range slices.Chunk(p.ids, size) {
		if err := b.apply(ctx, some); err != nil {
			return b.applied, errors.Join(append(b.errs, err)...)
		}
	}
	return b.applied, errors.Join(b.errs...)
}

type bulk struct {
	admin   *Admin
	order   *order
	applied Applied
	errs    []error
}

// apply changes one batch; where one instance is in the way of the others, one by one. An error ends the whole.
func (b *bulk) apply(ctx context.Context, ids []int64) error {
	for n := 1; ; n++ {
		done, err := b.admin.operate(ctx, ids, b.order)
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
			b.applied.Failed++
			if len(b.errs) < bulkErrors {
				b.errs = append(b.errs, fmt.Errorf("instance %d: %w", ids[0], err))
			}
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

// inTheWay reports whether an error is one instance's own.
func (b *bulk) inTheWay(err error) bool {
	return store.IsUniqueViolation(err) || store.IsLockTimeout(err) || store.Classify(err) == store.FaultData || isFinal(err)
}

func (b *bulk) count(done store.Operated) {
	for _, c := range done.Changed {
		if c.Asked {
			b.applied.Changed++
		} else {
			b.applied.Descendants++
		}
	}
	b.applied.Skipped += int64(len(done.Refused))
}
