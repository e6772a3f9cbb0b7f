package fsm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// A program has the code of a generic type once for each machine's types. These two hold the parts
// of a definition and of its steps that need none of these types, so a program has their code once.
type (
	plan struct {
		declared   declaration
		job        bool
		handled    bool // OnError was called, if only with nil
		mute       bool // with nil
		policy     *RetryPolicy
		crashLimit *int
		history    Keep
		from       []Migration

		unless  bool
		to      string
		signals []AnySignal
	}

	stepPlan struct {
		name     string
		runs     bool // it has a function
		to       []string
		timeout  time.Duration
		onDemand bool
		batch    *batching // nil: not a batch step
	}
)

// machine returns the machine without what it runs, except that it retries, or fails.
func (d *plan) machine(steps []stepPlan) *step.Machine {
	m := &step.Machine{
		Name: d.declared.name, Version: d.declared.version, Queue: d.declared.queue, Initial: d.declared.initial,
		Job: d.job, Keyed: d.declared.key != nil, Steps: make(map[string]step.Step, len(steps)), CrashLimit: DefaultCrashLimit, History: d.history, From: d.migrations(),
		Faults: d.faults(steps), TypeFaults: d.typeFaults, OnError: fails,
	}
	if d.unless {
		m.Unless = &step.Unless{Step: d.to}
		m.Unless.Names, _ = signalNames(d.signals, math.MaxInt) // faults reports the error
	}
	if d.crashLimit != nil {
		m.CrashLimit = *d.crashLimit
	}
	for _, s := range steps {
		m.Steps[s.name] = step.Step{To: slices.Clone(s.to), Timeout: s.timeout, OnDemand: s.onDemand}
	}
	if policy := d.effectivePolicy(); policy != nil && (!d.handled || d.mute) {
		m.MaxAttempts = policy.maxAttempts()
		m.OnError = retries(*policy)
	}
	return m
}

func (d *plan) effectivePolicy() *RetryPolicy {
	if d.policy == nil && d.job && !d.handled {
		return &RetryPolicy{}
	}
	return d.policy
}

// retries passes the state on as it is stored. So it need not decode, and fields that this version
// of the program does not know are kept.
func retries(p RetryPolicy) func(context.Context, *step.Claim, error) (*step.Commit, error) {
	return func(_ context.Context, c *step.Claim, failed error) (*step.Commit, error) {
		return p.commit(c.Attempt, c.State, failed)
	}
}

func fails(_ context.Context, _ *step.Claim, failed error) (*step.Commit, error) {
	return failure(FailureError, failed), nil
}

func (d *plan) faults(steps []stepPlan) []error {
	faults := d.declared.faults()
	add := func(field string, err error) { faults = append(faults, d.declared.fault(field, err)) }

	names := map[string]int{}
	for _, s := range steps {
		names[s.name]++
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] > 1 {
			add(stepField(name, ""), fmt.Errorf("defined %d times: give each step another name", names[name]))
		}
	}
	switch {
	case len(steps) == 0:
		add("steps", errors.New("none: give Define at least the initial step"))
	case names[d.declared.initial] == 0:
		add("steps", fmt.Errorf("no step %.80q, the initial one: define it, or declare another with fsm.Initial", d.declared.initial))
	}
	for _, s := range steps {
		if err := checkName(s.name); err != nil && !d.job { // a job's step is the declaration's, reported there
			add(stepField(s.name, ".name"), err)
		}
		s.faults(func(field string, err error) { add(stepField(s.name, field), err) })
		for _, to := range s.to {
			if names[to] == 0 {
				add(stepField(s.name, ".to"), fmt.Errorf("the machine has no step %.80q", to))
			}
		}
	}
	if d.mute {
		add("on_error", errors.New("nil function"))
	}
	if d.policy != nil {
		if field, err := d.policy.fault(); err != nil {
			add("retry."+field, err)
		}
		if d.handled {
			add("on_error", errors.New("set beside Retry: use Visit.RetryBy in the handler"))
		}
	}
	if k := d.history; k != "" && k != KeepNothing && !k.Recorded() {
		add("history", fmt.Errorf("%.80q, want %q, %q or %q", string(k), KeepNothing, KeepTransitions, KeepStates))
	}
	if n := d.crashLimit; n != nil && (*n < 0 || *n > math.MaxInt32) {
		add("crash_limit", fmt.Errorf("%d, want 0 (unlimited) to %d", *n, math.MaxInt32))
	}
	defined := func(name string) bool { return names[name] > 0 }
	d.unlessFaults(defined, add)
	d.fromFaults(defined, add)
	return faults
}

func (d *plan) unlessFaults(defined func(step string) bool, add func(field string, err error)) {
	if !d.unless {
		return
	}
	if !defined(d.to) {
		add("unless", fmt.Errorf("the machine has no step %.80q", d.to))
	}
	if _, err := signalNames(d.signals, step.DefaultAwaitNames); err != nil {
		if bad, ok := errors.AsType[*OutcomeError](err); ok {
			add("unless."+bad.Field, bad.Err)
		}
	}
}

// typeFaults returns which types of the definition a codec does not give back.
func (d *plan) typeFaults(c Codec) []error {
	faults := d.declared.typeFaults(c)
	for _, one := range d.from {
		if one.m == nil {
			continue
		}
		if err := step.CheckType(c, one.state); err != nil {
			faults = append(faults, d.declared.fault(fmt.Sprintf("from[version %d].state", one.m.From), err))
		}
	}
	return faults
}

// faults adds what is wrong with a step by itself.
func (d *stepPlan) faults(add func(field string, err error)) {
	if !d.runs {
		add("", errors.New("nil function"))
	}
	if d.batch != nil {
		d.batch.faults(add)
	}
	if err := checkDelay(d.timeout); err != nil {
		add(".timeout", err)
	}
}

func stepField(name, field string) string { return fmt.Sprintf("steps[%.80q]%s", name, field) }
