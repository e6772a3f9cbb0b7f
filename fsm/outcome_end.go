package fsm

import (
	"errors"

	"github.com/gendurable/gendurable/internal/step"
)

// EndOutcome is the outcome of [Visit.Done] and [Visit.Fail].
type EndOutcome[S any] struct{ end end }

type end struct {
	exec    *execution
	failed  bool
	result  any
	reason  error
	unless  bool
	to      string
	signals []AnySignal
	discard bool
	with    bool
	state   any
	added   []GraphNode
}

// Unless ends the instance only if no signal of these names waits in its inbox, except the ones in
// [Visit.Awaited]. Otherwise the instance goes on at the step to, with the stored state, as after
// a Next: it consumes the signals of Awaited, and a new visit begins, which gets the waiting
// signals in its own Awaited. So no such signal is lost: one that was sent before the end is seen,
// and one that is sent after it gets ErrNoTarget. Both are decided under the lock of the
// instance's row. Unless needs at least one signal and a step of the machine, which need not be in
// the To of the running one: the way is seldom taken, and a forgotten arrow would show weeks
// later.
func (e *EndOutcome[S]) Unless(to string, signals ...AnySignal) *EndOutcome[S] {
	e.end.unless, e.end.to, e.end.signals = true, to, signals
	return e
}

// Discard ends the instance whatever waits in its inbox, also where the machine says otherwise by
// [Defined.Unless]: a Done then deletes those signals. It excludes Unless.
func (e *EndOutcome[S]) Discard() *EndOutcome[S] {
	e.end.discard = true
	return e
}

// With sets the state with which an instance goes on that does not end: see Unless.
func (e *EndOutcome[S]) With(state S) *EndOutcome[S] {
	e.end.with, e.end.state = true, state
	return e
}

func (e *EndOutcome[S]) erase(of *step.Claim) (*step.Commit, error) {
	if e == nil {
		return nil, errNilOutcome()
	}
	return e.end.erase(of)
}

func (e *end) erase(of *step.Claim) (*step.Commit, error) {
	if err := e.exec.owns(of); err != nil {
		return nil, err
	}
	var c *step.Commit
	if e.failed {
		if e.reason == nil {
			return nil, outcomeFault("reason", errors.New("nil: Fail needs the error that says why"))
		}
		c = failure(FailureDecided, e.reason)
	} else {
		result, err := encode(e.exec.env, e.result)
		if err != nil {
			return nil, outcomeFault("result", err)
		}
		c = &step.Commit{Kind: step.Done, Result: result}
	}
	var err error
	c.Unless, err = e.alternative(of)
	if err != nil {
		return nil, err
	}
	if c.Unless != nil && len(e.added) > 0 {
		return nil, outcomeFault("add", errors.New("both Unless and Add: use one; with Discard this end drops the signals in the inbox"))
	}
	if c.Add, err = e.exec.additions(e.added); err != nil {
		return nil, err
	}
	return c, nil
}

func (e *end) alternative(of *step.Claim) (*step.Unless, error) {
	var out step.Unless
	switch whole := e.exec.machine.Unless; {
	case e.unless && e.discard:
		return nil, outcomeFault("discard", errors.New("both Unless and Discard: use one"))
	case e.unless:
		if err := e.exec.has(of, e.to); err != nil {
			return nil, err
		}
		names, err := e.exec.names(e.signals)
		if err != nil {
			return nil, err
		}
		out.Names, out.Step = names, e.to
	case whole != nil && !e.failed && !e.discard:
		out.Names, out.Step = whole.Names, whole.Step
	case e.with:
		return nil, outcomeFault("state", errors.New("set by With, which needs Unless: the state is for the step that Unless names"))
	default:
		return nil, nil
	}
	if e.with {
		var err error
		if out.State, err = e.exec.store(of, e.state); err != nil {
			return nil, err
		}
	}
	return &out, nil
}
