package fsm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Joining is the outcome of [Visit.ScheduleChildren]. Without any of its methods, the instance goes
// on when all children have ended. Each method lets it go on earlier as well: whichever comes first
// counts. It then goes on exactly once; [Visit.Round] counts what has ended, [Visit.TimedOut] and
// [Visit.Awaited] tell of a timeout and of signals. The children that have not ended go on, too,
// unless CancelRest cancels them. When they end, nothing is woken any more, and no later round
// counts them.
type Joining struct {
	exec     *execution
	to       string
	state    any
	children []Spec

	quorum     int
	many       bool // Quorum was called
	race, fast bool
	or         bool // Or was called
	cancel     bool // CancelRest was called
	signals    []AnySignal
	bound      bound
}

// Quorum goes on as soon as k children are done, or so many have failed that k can never be.
// Children that were dropped count as failed. k is at least 1, and at most the number of children.
// Quorum excludes Race.
func (j *Joining) Quorum(k int) *Joining {
	j.quorum, j.many = k, true
	return j
}

// Race goes on as soon as one child has ended, done or failed. It excludes Quorum and FailFast.
func (j *Joining) Race() *Joining {
	j.race = true
	return j
}

// FailFast goes on as soon as one child has failed.
func (j *Joining) FailFast() *Joining {
	j.fast = true
	return j
}

// Or goes on as soon as a signal of one of these names is in the inbox, as [Visit.Await] does. It
// needs at least one name. The step to gets the signals in its Awaited.
func (j *Joining) Or(signals ...AnySignal) *Joining {
	j.or, j.signals = true, append(j.signals, signals...)
	return j
}

// Timeout goes on d after the commit; [Visit.TimedOut] then reports true. It must be positive, at
// most 100 years, and excludes Until.
func (j *Joining) Timeout(d time.Duration) *Joining {
	j.bound.timeout, j.bound.limited = d, true
	return j
}

// Until goes on at a time, as Timeout does after a duration. A past time counts at once. The zero
// time is an [OutcomeError].
func (j *Joining) Until(at time.Time) *Joining {
	j.bound.until, j.bound.fixed = at, true
	return j
}

// CancelRest cancels the children that have not ended when the instance does not wait for them any
// more: since it goes on, or since it has ended while it waited, by an operator or by its deadline.
// What these children have spawned is cancelled with them. They end as failed, as by an operator's
// cancel. That begins at once or within a second, and not with the commit that wakes the instance:
// the step to may still see them live, and one may even be done.
func (j *Joining) CancelRest() *Joining {
	j.cancel = true
	return j
}

// policy returns what wakes the instance before all children have ended, and what becomes of the
// others then; nil: nothing does.
func (j *Joining) policy() (*step.Join, error) {
	out := step.Join{Done: j.quorum, Cancel: j.cancel}
	switch n := len(j.children); {
	case j.many && j.quorum < 1:
		return nil, outcomeFault("quorum", fmt.Errorf("%d, at least 1", j.quorum))
	case j.quorum > n:
		return nil, outcomeFault("quorum", fmt.Errorf("%d, at most the number of children, %d", j.quorum, n))
	case j.race && j.many:
		return nil, outcomeFault("race", errors.New("both Quorum and Race"))
	case j.race && j.fast:
		return nil, outcomeFault("race", errors.New("both FailFast and Race"))
	}
	if j.race {
		out.Ended = 1
	}
	if j.fast {
		out.Failed = 1
	}
	var err error
	if j.or {
		if out.Names, err = j.exec.names(j.signals); err != nil {
			return nil, err
		}
	}
	if out.Timeout, out.At, err = j.bound.check(); err != nil {
		return nil, err
	}
	if out.Done+out.Failed+out.Ended == 0 && !j.or && !j.bound.limited && !j.bound.fixed && !j.cancel {
		return nil, nil
	}
	return &out, nil
}

// Round counts the children of the round that joins at a visit.
type Round struct {
	Done   int `json:"done"`
	Failed int `json:"failed"`
	Left   int `json:"left"` // that have not ended
}

// Round counts the children of the round that joins at this visit, as [Visit.Children] returns
// them: as they were when the step was about to run. More may have ended than those that woke it.
// It counts none at any other visit, and none in a step that reads them itself
// ([StepDef.ChildrenOnDemand]). Dropped children are not counted.
func (v *Visit[S, R]) Round() (r Round) {
	for i := range v.execution().claim.Children {
		switch Status(v.execution().claim.Children[i].Status) {
		case StatusDone:
			r.Done++
		case StatusFailed:
			r.Failed++
		default:
			r.Left++
		}
	}
	return r
}

// Erase implements [Outcome]. It is for the engine's packages and carries no promise of
// compatibility.
func (j *Joining) Erase(of *step.Claim) (*step.Commit, error) {
	if j == nil {
		return nil, errNilOutcome()
	}
	state, err := j.exec.onward(of, j.to, j.state)
	if err != nil {
		return nil, err
	}
	limits := j.exec.env.Limits
	if len(j.children) > limits.Children {
		return nil, outcomeFault("children", fmt.Errorf("%d, at most %d", len(j.children), limits.Children))
	}
	if depth := j.exec.claim.Depth + 1; len(j.children) > 0 && depth > limits.Depth {
		return nil, outcomeFault("children", fmt.Errorf("nested %d deep, at most %d", depth, limits.Depth))
	}
	join, err := j.policy()
	if err != nil {
		return nil, err
	}
	c := &step.Commit{Kind: step.Children, Step: j.to, State: state, Spawn: make([]step.Spec, 0, len(j.children)), Join: join}
	size := len(state)
	for i, child := range j.children {
		spec, err := j.erase(child)
		if bad, ok := errors.AsType[*SpecError](err); ok {
			return nil, outcomeFault(fmt.Sprintf("children[%d].%s", i, bad.Field), bad.Err)
		} else if err != nil {
			return nil, outcomeFault(fmt.Sprintf("children[%d]", i), err)
		}
		if size += spec.Bytes(); size > limits.OutcomeBytes {
			return nil, outcomeFault(fmt.Sprintf("children[%d]", i), fmt.Errorf("over %d bytes together with what is before it: %w",
				limits.OutcomeBytes, ErrTooLarge))
		}
		c.Spawn = append(c.Spawn, *spec)
	}
	return c, nil
}

// erase passes a child to the host's middleware, and validates the spec that this returns.
func (j *Joining) erase(child Spec) (*step.Spec, error) {
	ctx := j.exec.ctx
	if ctx == nil { // a test made the visit by hand
		ctx = context.Background()
	}
	if through := j.exec.env.Child; through != nil {
		changed, err := through(ctx, child)
		if err != nil {
			return nil, specFault("middleware", err)
		}
		child, _ = changed.(Spec)
	}
	spec, err := child.Erase(j.exec.env)
	if err != nil {
		return nil, err
	}
	if err := checkUnruled(spec, "a child"); err != nil {
		return nil, err
	}
	spec.Trace = j.exec.env.Trace(ctx)
	return spec, nil
}
