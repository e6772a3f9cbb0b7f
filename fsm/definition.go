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

// DefaultCrashLimit is how often an instance may lose its process in one visit, unless
// [Defined.CrashLimit] says otherwise.
const DefaultCrashLimit = 20

// Definition is a machine with its steps, for engine.Config. Several engines may use the same one.
// Only this package can implement it.
type Definition interface {
	// erase returns the machine without its types. Its Faults say what is wrong with it, each as a
	// *DefinitionError.
	erase() *step.Machine
}

// StepFunc is a step. It returns an outcome that its visit has made, or an error. The machine's
// handler gets the error, and also a panic, as a [PanicError].
type StepFunc[S, R any] = func(ctx context.Context, v *Visit[S, R]) (Outcome, error)

// HandlerFunc decides what a failed step leads to: any outcome, with the same effect as one of the
// step itself. Its visit is the step's, with the state decoded anew, and err is the step's error.
// If the handler fails too, the instance fails with both errors.
type HandlerFunc[S, R any] = func(ctx context.Context, v *Visit[S, R], err error) (Outcome, error)

// StepDef is a step of a definition. Its methods return changed copies.
type StepDef[S, R any] struct {
	name    string
	run     StepFunc[S, R]
	to      []string
	timeout time.Duration

	onDemand bool

	batch *batching // nil: not a batch step
	call  BatchFunc[S, R]
}

// Step gives a step its durable name: renaming a step that instances stand at needs a new version
// of the machine.
func Step[S, R any](name string, f StepFunc[S, R]) StepDef[S, R] {
	return StepDef[S, R]{name: name, run: f}
}

// To declares to which steps this step may lead by Next, Await and ScheduleChildren; it may lead to
// itself only if it is among them. engine.New checks the names. An outcome that leads elsewhere is
// an [OutcomeError], also one of the handler when this step has failed. A step without To may lead
// to every step of the machine; one with an empty To() may lead to none.
func (d StepDef[S, R]) To(steps ...string) StepDef[S, R] {
	d.to = append([]string{}, steps...)
	return d
}

// Timeout cancels the step's context after t, with the cause [ErrStepTimeout]; 0, the default, is
// no timeout. The engine handles whatever the step then returns as at any other time. A step that
// ignores its context goes on, and the engine calls the hook Zombie.
func (d StepDef[S, R]) Timeout(t time.Duration) StepDef[S, R] {
	d.timeout = t
	return d
}

// ChildrenOnDemand leaves it to the step to read the children that join at it, with
// [Visit.EachChild] or [Machine.EachChild]: for rounds that are larger than a process should hold.
// Without it they are read before the step runs, and a round over Limits.ChildrenBytes is the
// step's error, an ErrTooLarge.
func (d StepDef[S, R]) ChildrenOnDemand() StepDef[S, R] {
	d.onDemand = true
	return d
}

// Defined is a [Definition]. Its methods change and return it. An engine keeps what it was made
// with: later changes do not reach it.
type Defined[S, R any] struct {
	declared   declaration
	steps      []StepDef[S, R]
	job        bool
	handler    HandlerFunc[S, R]
	handled    bool // OnError was called, if only with nil
	policy     *RetryPolicy
	crashLimit *int
	history    Keep
	from       []Migration

	unless  bool
	to      string
	signals []AnySignal
}

// OnError sets the handler of failed steps. A machine with neither OnError nor Retry fails an
// instance whose step fails ([FailureError]). On a job, OnError replaces the retries. To set both
// OnError and Retry is a fault of the definition.
func (d *Defined[S, R]) OnError(h HandlerFunc[S, R]) *Defined[S, R] {
	d.handler, d.handled = h, true
	return d
}

// Retry sets the ready-made handler: it retries as p says, and then fails the instance, with
// [FailureExhausted] if the attempts are used up, or with [FailureError] on a [Permanent] error.
func (d *Defined[S, R]) Retry(p RetryPolicy) *Defined[S, R] {
	d.policy = &p
	return d
}

// Unless keeps each Done of the machine from dropping what its senders count on: it ends an
// instance only if no signal of these names waits in the inbox, as if [EndOutcome.Unless] said so,
// and else the instance goes on at the step to. An outcome with its own Unless goes by that one;
// [EndOutcome.Discard] is for a Done that is to delete waiting signals. Every step may lead to
// this one. A Fail deletes no signal, and so is left as it is.
func (d *Defined[S, R]) Unless(to string, signals ...AnySignal) *Defined[S, R] {
	d.unless, d.to, d.signals = true, to, slices.Clone(signals)
	return d
}

// CrashLimit sets how often an instance may lose its process in one visit before it fails with
// [FailureCrashes]: [DefaultCrashLimit] (20) unless given; 0 is unlimited.
func (d *Defined[S, R]) CrashLimit(n int) *Defined[S, R] {
	d.crashLimit = &n
	return d
}

// History says what the history keeps of the machine's instances, in place of what
// engine.Config.History says for all machines. Each row is written in the transaction of its
// outcome. Give all versions and processes the same.
func (d *Defined[S, R]) History(k Keep) *Defined[S, R] {
	d.history = k
	return d
}

func (d *Defined[S, R]) erase() *step.Machine {
	if d == nil {
		d = &Defined[S, R]{}
	}
	m := &step.Machine{
		Name: d.declared.name, Version: d.declared.version, Queue: d.declared.queue, Initial: d.declared.initial,
		Job: d.job, Keyed: d.declared.key != nil, Steps: make(map[string]step.Step, len(d.steps)), CrashLimit: DefaultCrashLimit, History: d.history, From: d.migrations(),
		Faults: d.faults(), TypeFaults: d.typeFaults,
	}
	if d.unless {
		m.Unless = &step.Unless{Step: d.to}
		m.Unless.Names, _ = signalNames(d.signals, math.MaxInt) // faults reports the error
	}
	if d.crashLimit != nil {
		m.CrashLimit = *d.crashLimit
	}
	for _, s := range d.steps {
		erased := step.Step{To: slices.Clone(s.to), Timeout: s.timeout, OnDemand: s.onDemand}
		if s.batch == nil {
			erased.Run = runs(m, s.run)
		} else {
			erased.Batch = batches(m, s.batch, s.call)
			erased.Run = runsAlone(erased.Batch)
		}
		m.Steps[s.name] = erased
	}
	switch policy := d.effectivePolicy(); {
	case d.handler != nil:
		m.OnError = handles(m, d.handler)
	case policy != nil:
		m.MaxAttempts = policy.maxAttempts()
		m.OnError = retries(*policy)
	default:
		m.OnError = fails
	}
	return m
}

func (d *Defined[S, R]) effectivePolicy() *RetryPolicy {
	if d.policy == nil && d.job && !d.handled {
		return &RetryPolicy{}
	}
	return d.policy
}

// runs makes one closure per step. Here the types S and R are lost.
func runs[S, R any](m *step.Machine, run StepFunc[S, R]) func(context.Context, *step.Claim) (*step.Commit, error) {
	return func(ctx context.Context, c *step.Claim) (*step.Commit, error) {
		v, err := newVisit[S, R](m, c)
		if err != nil {
			return nil, err
		}
		out, err := run(v.exec.context(ctx), v)
		return settle(v.exec, out, err)
	}
}

func handles[S, R any](m *step.Machine, handle HandlerFunc[S, R]) func(context.Context, *step.Claim, error) (*step.Commit, error) {
	return func(ctx context.Context, c *step.Claim, failed error) (*step.Commit, error) {
		// If the state does not decode, the handler gets that error as failed, and a visit with the zero
		// state.
		v, _ := newVisit[S, R](m, c)
		v.exec.failed = failed
		out, err := handle(v.exec.context(ctx), v, failed)
		return settle(v.exec, out, err)
	}
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

func settle(x *execution, out Outcome, err error) (*step.Commit, error) {
	if err != nil {
		if delay, ok := snoozed(err); ok {
			return &step.Commit{Kind: step.Again, Delay: delay}, nil
		}
		return nil, err
	}
	if out == nil {
		return nil, errNilOutcome()
	}
	return out.erase(x.claim)
}

func (d *Defined[S, R]) faults() []error {
	faults := d.declared.faults()
	add := func(field string, err error) { faults = append(faults, d.declared.fault(field, err)) }

	names := map[string]int{}
	for _, s := range d.steps {
		names[s.name]++
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] > 1 {
			add(stepField(name, ""), fmt.Errorf("defined %d times: give each step another name", names[name]))
		}
	}
	switch {
	case len(d.steps) == 0:
		add("steps", errors.New("none: give Define at least the initial step"))
	case names[d.declared.initial] == 0:
		add("steps", fmt.Errorf("no step %.80q, the initial one: define it, or declare another with fsm.Initial", d.declared.initial))
	}
	for _, s := range d.steps {
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
	if d.handled && d.handler == nil {
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

func (d *Defined[S, R]) unlessFaults(defined func(step string) bool, add func(field string, err error)) {
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
func (d *Defined[S, R]) typeFaults(c Codec) []error {
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
func (d *StepDef[S, R]) faults(add func(field string, err error)) {
	if d.run == nil && d.call == nil {
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
