package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// ChildrenOutcome is the outcome of [Visit.ScheduleChildren], [Visit.ScheduleGraph] and
// [Visit.Rejoin]. Without any of its methods, the instance goes on when all children have ended.
// Each method lets it go on earlier as well: whichever comes first counts. It then goes on exactly
// once; [Visit.Round] counts what has ended, [Visit.TimedOut] and [Visit.Awaited] tell of a timeout
// and of signals. The children that have not ended go on, too, unless CancelRest cancels them;
// nodes of a graph do until their root ends. When they end, nothing is woken any more, and no later
// round counts them.
type ChildrenOutcome struct {
	exec     *execution
	to       string
	state    any
	children []Spec
	nodes    []GraphNode // of ScheduleGraph, one for each of children; nil: they are no nodes
	again    bool        // it is a Rejoin

	quorum     int
	many       bool // Quorum was called
	race, fast bool
	or         bool // Or was called
	cancel     bool // CancelRest was called
	streams    bool // Stream was called
	most       int
	signals    []AnySignal
	bound      bound
}

// Quorum goes on as soon as k children are done, or so many have failed that k can never be.
// Children that were dropped, and nodes that were skipped, count as failed for that. k is at least
// 1, and at most the number of children; for a Rejoin, of those that the step saw live.
func (j *ChildrenOutcome) Quorum(k int) *ChildrenOutcome {
	j.quorum, j.many = k, true
	return j
}

// Race goes on as soon as one child has ended, done or failed, but not skipped. With a Quorum of
// all children that are left it goes on with each end, also of a node that is skipped. Race
// excludes FailFast.
func (j *ChildrenOutcome) Race() *ChildrenOutcome {
	j.race = true
	return j
}

// FailFast goes on as soon as one child has failed. A node that was skipped ([FailureSkipped])
// counts as none: what it was skipped for has failed itself, or all is well.
func (j *ChildrenOutcome) FailFast() *ChildrenOutcome {
	j.fast = true
	return j
}

// Or goes on as soon as a signal of one of these names is in the inbox, as [Visit.Await] does. It
// needs at least one name. The step to gets the signals in its Awaited.
func (j *ChildrenOutcome) Or(signals ...AnySignal) *ChildrenOutcome {
	j.or, j.signals = true, append(j.signals, signals...)
	return j
}

// Timeout goes on d after the commit; [Visit.TimedOut] then reports true. It must be positive, at
// most 100 years, and excludes Until.
func (j *ChildrenOutcome) Timeout(d time.Duration) *ChildrenOutcome {
	j.bound.timeout, j.bound.limited = d, true
	return j
}

// Until goes on at a time, as Timeout does after a duration. A past time counts at once. The zero
// time is an [OutcomeError].
func (j *ChildrenOutcome) Until(at time.Time) *ChildrenOutcome {
	j.bound.until, j.bound.fixed = at, true
	return j
}

// CancelRest cancels the children that have not ended when the instance does not wait for them any
// more: since it goes on, or since it has ended while it waited, by an operator or by its deadline.
// What these children have spawned is cancelled with them. They end as failed, as by an operator's
// cancel. That begins at once or within a second, and not with the commit that wakes the instance:
// the step to may still see them live, and one may even be done.
func (j *ChildrenOutcome) CancelRest() *ChildrenOutcome {
	j.cancel = true
	return j
}

// Stream goes on as soon as a child has ended, done or failed, that no visit was shown. The step to
// is shown a portion: by [Machine.Children], at most most of the children that have ended, in the
// order in which their ends were committed. [Visit.Round] counts the portion, and as left all
// children that no visit was shown yet. A portion is of its visit: an execution after a Retry or a
// crash gets it again, and progress consumes it. So each child is shown exactly once to progress.
// The step waits for the next portion by a [Visit.Rejoin] with Stream.
//
// A round is a stream from its beginning: only where [Visit.ScheduleChildren] has a Stream may a
// Rejoin have one. A Rejoin without one shows the whole round, and consumes nothing of the stream.
// most is at least 1. Stream excludes Quorum, Race, FailFast and CancelRest.
func (j *ChildrenOutcome) Stream(most int) *ChildrenOutcome {
	j.most, j.streams = most, true
	return j
}

// checkStream says what is wrong with a stream.
func (j *ChildrenOutcome) checkStream() error {
	fault := func(text string) error { return outcomeFault("stream", errors.New(text)) }
	switch {
	case j.most < 1 || j.most > math.MaxInt32:
		return outcomeFault("stream", fmt.Errorf("%d, at least 1 and at most %d", j.most, math.MaxInt32))
	case j.again && j.exec.claim.Round > 0:
		return fault("the children were not scheduled as a stream: give ScheduleChildren the Stream")
	case j.nodes != nil:
		return fault("a graph is no stream: use Stream with ScheduleChildren")
	case j.many:
		return fault("both Quorum and Stream: use one")
	case j.race:
		return fault("both Race and Stream: use one")
	case j.fast:
		return fault("both FailFast and Stream: use one")
	case j.cancel:
		return fault("both CancelRest and Stream: the first end would cancel the others")
	}
	return nil
}

// policy returns the condition that wakes the instance before all children have ended, and the
// fate of the others then; nil: nothing does.
func (j *ChildrenOutcome) policy() (*step.Join, error) {
	out := step.Join{Done: j.quorum, Cancel: j.cancel}
	n, known := len(j.children), true
	if children := j.exec.claim.Children; j.again {
		// A step that reads its children itself, and one at which none join, may not know what is left.
		// A portion of a stream says nothing of the others.
		if known = len(children) > 0 && j.exec.claim.Portion == nil; known {
			round := countRound(children)
			n, out.Seen = round.Left, seen(children)
		}
	}
	if j.streams {
		if err := j.checkStream(); err != nil {
			return nil, err
		}
		out.Stream, out.Ended, out.Seen = j.most, 1, nil
	}
	switch {
	case j.many && j.quorum < 1:
		return nil, outcomeFault("quorum", fmt.Errorf("%d, at least 1", j.quorum))
	case known && j.quorum > n && j.again:
		return nil, outcomeFault("quorum", fmt.Errorf("%d, at most the number of children that are left, %d", j.quorum, n))
	case known && j.quorum > n:
		return nil, outcomeFault("quorum", fmt.Errorf("%d, at most the number of children, %d", j.quorum, n))
	case j.race && j.fast:
		return nil, outcomeFault("race", errors.New("both FailFast and Race: use one, since Race goes on at the first failure, too"))
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
	early := out.Done+out.Failed+out.Ended > 0 || j.or || j.bound.limited || j.bound.fixed
	if !j.again && !early && !out.Cancel {
		return nil, nil
	}
	return &out, nil
}

// Round counts the children of the round that joins at a visit.
type Round struct {
	Done   int `json:"done"`
	Failed int `json:"failed"`
	// Skipped nodes of a graph ([FailureSkipped]) are counted apart: no policy takes them for failed.
	Skipped int `json:"skipped,omitempty"`
	Left    int `json:"left"` // that have not ended; in a stream, that no visit was shown yet
}

// Round counts the children of the round that joins at this visit, as [Visit.Children] returns
// them: as they were when the step was about to run. More may have ended than those that woke it.
// A child that an operator has retried since it failed counts as failed until it ends again: no
// join waits for it. It counts none at any other visit, and none in a step that reads them itself
// ([StepDef.ChildrenOnDemand]). Dropped children are not counted. In a stream, Done and Failed
// count the portion, and Left counts the children that are yet to be shown, also where the step
// reads them itself: see [ChildrenOutcome.Stream].
func (v *Visit[S, R]) Round() Round {
	return v.execution().round()
}

func (x *execution) round() Round {
	c := x.claim
	r := countRound(c.Children)
	if c.Portion != nil {
		r.Left = c.Portion.Left
	}
	return r
}

// Joins reports whether a round of children joins at this visit, or a portion of a stream. At any
// other visit Round counts none: before the first ScheduleChildren, after a Next, and where an
// operator has rewound the instance, whose children have not joined. A Rejoin lets them.
func (v *Visit[S, R]) Joins() bool {
	x := v.execution()
	return x.claim != nil && x.claim.Joins()
}

func countRound(children []step.Child) (r Round) {
	for i := range children {
		switch status := Status(children[i].Status); {
		case status == StatusDone:
			r.Done++
		case status == StatusFailed && children[i].Failure == string(FailureSkipped):
			r.Skipped++
		case status == StatusFailed:
			r.Failed++
		default:
			if children[i].Retried {
				r.Failed++
			} else {
				r.Left++
			}
		}
	}
	return r
}

// seen counts the children as joins do, each as it first ended, and none that was skipped.
func seen(children []step.Child) *step.Seen {
	var s step.Seen
	for i := range children {
		switch c := &children[i]; {
		case c.Retried || c.Status == string(StatusFailed) && c.Failure != string(FailureSkipped):
			s.Failed++
		case c.Status == string(StatusDone):
			s.Done++
		}
	}
	return &s
}

func (j *ChildrenOutcome) erase(of *step.Claim) (*step.Commit, error) {
	if j == nil {
		return nil, errNilOutcome()
	}
	state, err := j.exec.onward(of, j.to, j.state)
	if err != nil {
		return nil, err
	}
	if j.again {
		return j.rejoin(state)
	}
	limits := j.exec.env.Limits
	if len(j.children) > limits.Children {
		return nil, outcomeFault(j.what(), fmt.Errorf("%d, at most %d", len(j.children), limits.Children))
	}
	if depth := j.exec.claim.Depth + 1; len(j.children) > 0 && depth > limits.Depth {
		return nil, outcomeFault(j.what(), fmt.Errorf("nested %d deep, at most %d", depth, limits.Depth))
	}
	join, err := j.policy()
	if err != nil {
		return nil, err
	}
	graph, err := j.graph()
	if err != nil {
		return nil, err
	}
	what, place := j.what(), alone
	if graph != nil {
		place = func(s Spec) Spec { return s.inQueue(j.exec.claim.Queue) }
	}
	c := &step.Commit{Kind: step.Children, Step: j.to, State: state, Spawn: make([]step.Spec, 0, len(j.children)), Join: join, Graph: graph}
	size := len(state) + graph.Bytes()
	for i, child := range j.children {
		spec, err := j.exec.spawned(child, place)
		if bad, ok := errors.AsType[*SpecError](err); ok {
			return nil, outcomeFault(fmt.Sprintf("%s[%d].%s", what, i, bad.Field), bad.Err)
		} else if err != nil {
			return nil, outcomeFault(fmt.Sprintf("%s[%d]", what, i), err)
		}
		if graph != nil && spec.Key != "" {
			return nil, outcomeFault(fmt.Sprintf("%s[%d].key", what, i), nodeKeyFault(child))
		}
		if size += spec.Bytes(); size > limits.OutcomeBytes {
			return nil, outcomeFault(fmt.Sprintf("%s[%d]", what, i), fmt.Errorf("over %d bytes together with the specs before it: %w",
				limits.OutcomeBytes, ErrTooLarge))
		}
		c.Spawn = append(c.Spawn, *spec)
	}
	return c, nil
}

// rejoin is erase of a Rejoin.
func (j *ChildrenOutcome) rejoin(state json.RawMessage) (*step.Commit, error) {
	if j.exec.claim.Round == 0 {
		return nil, outcomeFault("rejoin", errors.New("the instance never had children"))
	}
	join, err := j.policy()
	if err != nil {
		return nil, err
	}
	return &step.Commit{Kind: step.Rejoin, Step: j.to, State: state, Join: join}, nil
}

// alone is the place of a child that is no node: its queue is its own.
func alone(s Spec) Spec { return s }

// spawned passes a child to the host's middleware, and validates the spec that this returns. place
// gives a node its graph's queue: the middleware sees it, and may return a spec without it.
func (x *execution) spawned(child Spec, place func(Spec) Spec) (*step.Spec, error) {
	ctx := x.ctx
	if ctx == nil { // a test made the visit by hand
		ctx = context.Background()
	}
	if through := x.env.Child; through != nil {
		seen := place(child)
		open := seen.ofRoot
		seen.ofRoot = false // for other verbs an empty queue is none
		changed, err := through(ctx, seen)
		if err != nil {
			return nil, specFault("middleware", err)
		}
		child, _ = changed.(Spec)
		if open && child.o.Queue == "" { // copied from what it has seen
			child.queued = false
		}
	}
	child = place(child)
	spec, err := child.erase(x.env)
	if err != nil {
		return nil, err
	}
	if err := checkUnruled(spec, "a child"); err != nil {
		return nil, err
	}
	spec.Trace = x.env.Trace(ctx)
	return spec, nil
}
