package fsm

import (
	"context"
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
	stepPlan
	run  StepFunc[S, R]
	call BatchFunc[S, R]
}

// Step gives a step its durable name: renaming a step that instances stand at needs a new version
// of the machine.
func Step[S, R any](name string, f StepFunc[S, R]) StepDef[S, R] {
	return StepDef[S, R]{stepPlan: stepPlan{name: name, runs: f != nil}, run: f}
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
	plan
	steps   []StepDef[S, R]
	handler HandlerFunc[S, R]
}

// OnError sets the handler of failed steps. A machine with neither OnError nor Retry fails an
// instance whose step fails ([FailureError]). On a job, OnError replaces the retries. To set both
// OnError and Retry is a fault of the definition.
func (d *Defined[S, R]) OnError(h HandlerFunc[S, R]) *Defined[S, R] {
	d.handler, d.handled, d.mute = h, true, h == nil
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
	steps := make([]stepPlan, len(d.steps))
	for i, s := range d.steps {
		steps[i] = s.stepPlan
	}
	m := d.machine(steps)
	for _, s := range d.steps {
		erased := m.Steps[s.name]
		if s.batch == nil {
			erased.Run = runs(m, s.run)
		} else {
			erased.Batch = batches(m, s.batch, s.call)
			erased.Run = runsAlone(erased.Batch)
		}
		m.Steps[s.name] = erased
	}
	if d.handler != nil {
		m.OnError = handles(m, d.handler)
	}
	return m
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
