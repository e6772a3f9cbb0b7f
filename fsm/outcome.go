package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Outcome is the decision of a step, or of its machine's handler (spec §3). The methods of [Visit]
// make outcomes. A step returns either an outcome or an error; the engine ignores an outcome that
// comes with an error. No other package can implement Outcome.
type Outcome interface {
	// erase validates and encodes the outcome of the execution that the claim belongs to, in the
	// guarded region of the step. Its errors are of type *OutcomeError.
	erase(of *step.Claim) (*step.Commit, error)
}

// Next goes on at the step to, with this state: at once, or after [NextOutcome.After], or not
// before [NextOutcome.At]. It consumes the signals of [Visit.Awaited] and starts a new visit:
// attempt and crashes are 0 again.
func (v *Visit[S, R]) Next(to string, state S) *NextOutcome {
	return &NextOutcome{exec: v.execution(), to: to, state: state}
}

// Await parks the instance until a signal of one of these names is in the inbox, then goes on at
// the step to, with this state; at once if an unconsumed one is there already. If to is the step
// that is running, the signals of [Visit.Awaited] do not count, and the instance sleeps until
// another one arrives: so a step can collect a set of signals. Await consumes nothing. It needs at
// least one name and takes at most 1,000 unless configured otherwise, not counting duplicates.
func (v *Visit[S, R]) Await(to string, state S, signals ...AnySignal) *AwaitOutcome {
	return &AwaitOutcome{exec: v.execution(), to: to, state: state, signals: signals}
}

// ScheduleChildren inserts children and parks the instance, both in one commit. When all children
// have ended, or at once if there are none, the instance goes on at the step to, with this state;
// that step gets the children by [Machine.Children]. A child whose key is occupied is dropped: see
// [Visit.Dropped]. The children may be at most 20,000, nested at most 100 deep, unless configured
// otherwise. ScheduleChildren consumes the signals of [Visit.Awaited].
//
// The methods of [ChildrenOutcome] let the instance go on before all children have ended.
func (v *Visit[S, R]) ScheduleChildren(to string, state S, children ...Spec) *ChildrenOutcome {
	return &ChildrenOutcome{exec: v.execution(), to: to, state: state, children: children}
}

// Rejoin parks the instance again for the children that its newest ScheduleChildren has left: those
// that have not ended. When they have, or at once if there are none, the instance goes on at the
// step to, with this state; [Machine.Children] and [Visit.Round] are of the whole round there, as
// it is by then. The methods of [ChildrenOutcome] let it go on earlier. Their numbers are of the
// children that this step has seen live: Quorum(1) waits for one more to be done, and counts one
// that ended while this step ran. Rejoin consumes the signals of [Visit.Awaited]. It is an
// [OutcomeError] if the instance never had children.
//
// Rejoin does not take back the CancelRest of the join before: the rest is cancelled while the
// instance waits. So a Rejoin without methods waits until all of it has ended.
func (v *Visit[S, R]) Rejoin(to string, state S) *ChildrenOutcome {
	return &ChildrenOutcome{exec: v.execution(), to: to, state: state, again: true}
}

// Retry runs this step again after delay, as the next attempt of the same visit: the awaited names,
// the signals of [Visit.Awaited] and the idempotency keys stay. Retry has no limit; [Visit.RetryBy]
// has one.
func (v *Visit[S, R]) Retry(state S, delay time.Duration) Outcome {
	return &retrying{exec: v.execution(), state: state, delay: delay}
}

// Again runs this step again after a delay, as the same attempt of the same visit: it is neither a
// failure nor progress. Attempt, crashes, the state, the awaited names, the signals of
// [Visit.Awaited], the last error and the idempotency keys stay. So a step can wait for something
// that is not its fault, as often as it has to. Nothing but a deadline bounds that: it ends an
// instance that waits like any other. The delay must not be negative, nor over 100 years. A job
// returns the error of the function [Again] instead.
func (v *Visit[S, R]) Again(after time.Duration) Outcome {
	return &snoozing{exec: v.execution(), delay: after}
}

// AgainWith is Again with another state, which the next run gets.
func (v *Visit[S, R]) AgainWith(state S, after time.Duration) Outcome {
	return &snoozing{exec: v.execution(), state: state, changed: true, delay: after}
}

// RetryBy retries with v.State as the policy says, or fails the instance with err where the policy
// ends. It is the last statement of many a custom handler. If the attempts are used up it fails
// with [FailureExhausted], on a [Permanent] error with [FailureError]. A nil err is an
// [OutcomeError].
func (v *Visit[S, R]) RetryBy(p RetryPolicy, err error) Outcome {
	if v == nil {
		return (&Visit[S, R]{}).RetryBy(p, err)
	}
	return &policing{exec: v.execution(), policy: p, err: err, state: v.State}
}

// Done ends the instance with its result. It consumes the signals of [Visit.Awaited], and deletes
// whatever else is in the inbox, unless the outcome or the machine says that such signals keep the
// instance from its end: see [EndOutcome.Unless] and [Defined.Unless].
func (v *Visit[S, R]) Done(result R) *EndOutcome[S] {
	return &EndOutcome[S]{end{exec: v.execution(), result: result}}
}

// Fail ends the instance as failed ([FailureDecided]). The text of the reason becomes the
// instance's last_error, at most 8 KiB of it. A nil reason is an [OutcomeError].
func (v *Visit[S, R]) Fail(reason error) *EndOutcome[S] {
	return &EndOutcome[S]{end{exec: v.execution(), reason: reason, failed: true}}
}

// NextOutcome is the outcome of [Visit.Next].
type NextOutcome struct {
	exec        *execution
	to          string
	state       any
	delay       time.Duration
	at          time.Time
	after, when bool
	added       []GraphNode
}

// After delays the next step durably by d, from the commit on. The delay must not be negative, nor
// over 100 years, and excludes At.
func (t *NextOutcome) After(d time.Duration) *NextOutcome {
	t.delay, t.after = d, true
	return t
}

// At delays the next step durably until a time, at most 100 years from now. A past time means now.
// At excludes After.
func (t *NextOutcome) At(at time.Time) *NextOutcome {
	t.at, t.when = at, true
	return t
}

func (t *NextOutcome) erase(of *step.Claim) (*step.Commit, error) {
	if t == nil {
		return nil, errNilOutcome()
	}
	state, err := t.exec.onward(of, t.to, t.state)
	if err != nil {
		return nil, err
	}
	c := &step.Commit{Kind: step.Next, Step: t.to, State: state, Delay: t.delay}
	if t.after && t.when {
		return nil, outcomeFault("at", errors.New("both After and At: use one"))
	}
	if err := checkDelay(t.delay); err != nil {
		return nil, outcomeFault("delay", err)
	}
	if t.when {
		if c.At, err = checkTime(t.at); err != nil {
			return nil, outcomeFault("at", err)
		}
	}
	if c.Add, err = t.exec.additions(t.added); err != nil {
		return nil, err
	}
	return c, nil
}

// AwaitOutcome is the outcome of [Visit.Await].
type AwaitOutcome struct {
	exec    *execution
	to      string
	state   any
	signals []AnySignal
	bound   bound
}

// Timeout wakes the instance d after the commit, if no awaited signal has arrived by then;
// [Visit.TimedOut] then reports true. A timeout is not a failure. It starts anew each time that a
// step parks. It must be positive, at most 100 years, and excludes Until.
func (p *AwaitOutcome) Timeout(d time.Duration) *AwaitOutcome {
	p.bound.timeout, p.bound.limited = d, true
	return p
}

// Until wakes the instance at a time, as Timeout does after a duration: a step that parks towards
// itself can pass the same time again, e.g. from its state. A past time wakes the instance at once.
// The zero time is an [OutcomeError], since it is most likely a field that was never set.
func (p *AwaitOutcome) Until(at time.Time) *AwaitOutcome {
	p.bound.until, p.bound.fixed = at, true
	return p
}

func (p *AwaitOutcome) erase(of *step.Claim) (*step.Commit, error) {
	if p == nil {
		return nil, errNilOutcome()
	}
	state, err := p.exec.onward(of, p.to, p.state)
	if err != nil {
		return nil, err
	}
	names, err := p.exec.names(p.signals)
	if err != nil {
		return nil, err
	}
	if p.to == of.Step && of.Omitted {
		// It consumes nothing: the step would find the same signals, and never those behind them.
		return nil, outcomeFault("to", fmt.Errorf("towards the same step, while more signals are awaited than Limits.AwaitedBytes (%d) lets in: "+
			"consume those in Awaited with Next: %w", p.exec.env.Limits.AwaitedBytes, ErrTooLarge))
	}
	c := &step.Commit{Kind: step.Await, Step: p.to, State: state, Names: names}
	if c.Timeout, c.At, err = p.bound.check(); err != nil {
		return nil, err
	}
	return c, nil
}

// bound is the time at which a parked instance goes on anyway.
type bound struct {
	timeout        time.Duration
	until          time.Time
	limited, fixed bool // by Timeout, by Until
}

// check returns the timeout, or the time; both are zero if there is no bound.
func (b *bound) check() (time.Duration, time.Time, error) {
	if b.limited && b.fixed {
		return 0, time.Time{}, outcomeFault("until", errors.New("both Timeout and Until: use one"))
	}
	if b.limited {
		if err := checkDelay(b.timeout); err != nil {
			return 0, time.Time{}, outcomeFault("timeout", err)
		}
		if b.timeout == 0 {
			return 0, time.Time{}, outcomeFault("timeout", errors.New("zero: leave it out to wait without end"))
		}
		return b.timeout, time.Time{}, nil
	}
	if b.fixed {
		if b.until.IsZero() {
			return 0, time.Time{}, outcomeFault("until", errors.New("the zero time"))
		}
		at, err := checkTime(b.until)
		if err != nil {
			return 0, time.Time{}, outcomeFault("until", err)
		}
		return 0, at, nil
	}
	return 0, time.Time{}, nil
}

// names returns the distinct names of signals.
func (x *execution) names(signals []AnySignal) ([]string, error) {
	return signalNames(signals, x.env.Limits.AwaitNames)
}

func signalNames(signals []AnySignal, limit int) ([]string, error) {
	var names []string
	seen := make(map[string]bool, len(signals))
	for i, s := range signals {
		field := fmt.Sprintf("signals[%d]", i)
		if s == nil {
			return nil, outcomeFault(field, errors.New("nil"))
		}
		if err := checkName(s.Name()); err != nil {
			return nil, outcomeFault(field, err)
		}
		if !seen[s.Name()] {
			seen[s.Name()] = true
			names = append(names, s.Name())
		}
	}
	if len(names) == 0 {
		return nil, outcomeFault("signals", errors.New("none: name at least one signal"))
	}
	if len(names) > limit {
		return nil, outcomeFault("signals", fmt.Errorf("%d names, at most %d", len(names), limit))
	}
	return names, nil
}

type retrying struct {
	exec  *execution
	state any
	delay time.Duration
}

func (r *retrying) erase(of *step.Claim) (*step.Commit, error) {
	state, err := r.exec.store(of, r.state)
	if err != nil {
		return nil, err
	}
	if err := checkDelay(r.delay); err != nil {
		return nil, outcomeFault("delay", err)
	}
	return &step.Commit{Kind: step.Retry, State: state, Delay: r.delay, Err: step.SanitizeError(r.exec.failed)}, nil
}

type snoozing struct {
	exec    *execution
	state   any
	changed bool
	delay   time.Duration
}

func (s *snoozing) erase(of *step.Claim) (*step.Commit, error) {
	if err := s.exec.owns(of); err != nil {
		return nil, err
	}
	c := &step.Commit{Kind: step.Again, Delay: s.delay}
	if s.changed {
		var err error
		if c.State, err = s.exec.store(of, s.state); err != nil {
			return nil, err
		}
	}
	if err := checkDelay(s.delay); err != nil {
		return nil, outcomeFault("delay", err)
	}
	return c, nil
}

type policing struct {
	exec   *execution
	state  any
	policy RetryPolicy
	err    error
}

func (p *policing) erase(of *step.Claim) (*step.Commit, error) {
	state, err := p.exec.store(of, p.state)
	if err != nil {
		return nil, err
	}
	return p.policy.commit(of.Attempt, state, p.err)
}

func failure(why Failure, err error) *step.Commit {
	return &step.Commit{Kind: step.Fail, Err: step.SanitizeError(err), Failure: string(why)}
}

func outcomeFault(field string, err error) error { return &OutcomeError{Field: field, Err: err} }

func errNilOutcome() error {
	return outcomeFault("outcome", errors.New("nil, without an error: return one of the two"))
}

// owns refuses the outcome of another execution: a step may have kept a visit from an earlier one,
// and the compiler cannot tell two machines apart whose types are equal.
func (x *execution) owns(of *step.Claim) error {
	if x == nil || of == nil || x.claim != of {
		return outcomeFault("outcome", errors.New("made by another visit: return an outcome that a method of this visit has made"))
	}
	return nil
}

// store encodes a state. A handler gets the zero state if the stored one does not decode; if the
// handler passes that on unchanged, store keeps the stored state. Otherwise a handler that retries
// every failure would wipe the state of an instance that a newer version of the program wrote.
func (x *execution) store(of *step.Claim, state any) (json.RawMessage, error) {
	if err := x.owns(of); err != nil {
		return nil, err
	}
	if x.unreadable && reflect.DeepEqual(state, x.zero) {
		return x.claim.State, nil
	}
	raw, err := encode(x.env, state)
	if err != nil {
		return nil, outcomeFault("state", err)
	}
	return raw, nil
}

// onward checks the step that an outcome leads to, and encodes the state.
func (x *execution) onward(of *step.Claim, to string, state any) (json.RawMessage, error) {
	if err := x.leads(of, to); err != nil {
		return nil, err
	}
	return x.store(of, state)
}

// leads checks the step that an outcome leads to against the machine and against the running step's
// To.
func (x *execution) leads(of *step.Claim, to string) error {
	if err := x.has(of, to); err != nil {
		return err
	}
	if from := x.machine.Steps[of.Step]; from.To != nil && !slices.Contains(from.To, to) {
		return outcomeFault("step", fmt.Errorf("step %q may lead to %q only, not to %q: add it to the step's To", of.Step, from.To, to))
	}
	return nil
}

// has checks only that the machine has a step.
func (x *execution) has(of *step.Claim, to string) error {
	if err := x.owns(of); err != nil {
		return err
	}
	if _, ok := x.machine.Steps[to]; !ok {
		return outcomeFault("step", fmt.Errorf("machine %q version %d has no step %.80q, only %q",
			x.machine.Name, x.machine.Version, to, slices.Sorted(maps.Keys(x.machine.Steps))))
	}
	return nil
}
