package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// job is the function of both job machines. Their retry policies handle its errors.
func (p player) job(ctx context.Context, s work) (ending, error) {
	i, _ := fsm.InfoFrom(ctx)
	began := of(&i, &s)
	began.Kind = evStarted
	p.log.write(began)
	if s.light() {
		began.Kind, began.Detail = evWrong, "its state is not whole"
		p.log.write(began)
	}
	err := s.toil(ctx)
	switch {
	case err != nil:
	case s.Fate == "exhausted":
		err = errFatal
	case s.Fate == "error" && time.Now().After(s.Until) && !s.Until.IsZero(): // it is restarted, or late
	case s.Fate == "error":
		err = fsm.Permanent(errFatal)
	case i.Attempt < s.Fails && s.Fails%2 == 0:
		err = fsm.RetryAfter(10*time.Millisecond, errPassing)
	case i.Attempt < s.Fails:
		err = errPassing
	}
	ended := of(&i, &s)
	ended.Kind, ended.Outcome, ended.To, ended.ToN = evEnded, "done", i.Step, s.N
	if err != nil {
		ended.Outcome, ended.Detail = failure(ctx, err)
	}
	p.log.write(ended)
	return ending{s.Label, s.N}, err
}

// advance returns a step that goes on at another one.
func (p player) advance(to string) func(context.Context, *run) (fsm.Outcome, error) {
	return func(ctx context.Context, r *run) (fsm.Outcome, error) {
		if err := r.attempt(ctx); err != nil {
			return nil, err
		}
		return r.next(to, r.moved()), nil
	}
}

// link returns a step that leads to itself, until the chain is long enough. Half-way it sleeps, and
// one with another fate fails there.
func (p player) link(self string) func(context.Context, *run) (fsm.Outcome, error) {
	return func(ctx context.Context, r *run) (fsm.Outcome, error) {
		if err := r.attempt(ctx); err != nil {
			return nil, err
		}
		s := r.moved()
		half := s.N == 1+s.Steps/2
		switch {
		case half && s.Fate != "done":
			return nil, errFatal
		case s.N > s.Steps:
			return r.next("end", s), nil
		case half && s.Nap > 0:
			return r.next(self, s).After(time.Duration(s.Nap) * time.Millisecond), nil
		}
		return r.next(self, s), nil
	}
}

func (p player) finish(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.State.toil(ctx); err != nil {
		return nil, err
	}
	return r.done(), nil
}

// park returns a step that waits for the first signal.
func (p player) park(to string) func(context.Context, *run) (fsm.Outcome, error) {
	return func(ctx context.Context, r *run) (fsm.Outcome, error) {
		if err := r.attempt(ctx); err != nil {
			return nil, err
		}
		s := r.moved()
		if s.Fate == string(fsm.FailureDeadline) && r.Deadline.IsZero() {
			s.Within = 50 // an operator's retry has lifted the deadline, so nothing else would end it
		}
		return r.wait(to, s), nil
	}
}

// wait returns the await that the state describes.
func (r *run) wait(to string, s work) fsm.Outcome {
	o := r.await(to, s)
	switch {
	case !s.Until.IsZero():
		o.Until(s.Until)
	case s.Within > 0:
		o.Timeout(time.Duration(s.Within) * time.Millisecond)
	}
	return o
}

// take handles the signals that the mailbox got: Next consumes them.
func (p player) take(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	got, err := pings.All(r.visit)
	if err != nil {
		return nil, err
	}
	if len(got) == 0 && !r.TimedOut() {
		r.wrong("woken for nothing")
	}
	s := r.moved()
	s.Got = slices.Clone(s.Got)
	for _, g := range got {
		if !slices.Contains(s.Got, g.Index) {
			s.Got = append(s.Got, g.Index)
		}
	}
	return r.next("more", s), nil
}

func (p player) more(_ context.Context, r *run) (fsm.Outcome, error) {
	if len(r.State.Got) >= r.State.Want {
		return r.done(), nil
	}
	return r.wait("take", r.moved()), nil
}

// gather awaits towards itself: the signals stay in the inbox until all that it wants are there.
func (p player) gather(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	all, err := pings.All(r.visit)
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, g := range all {
		seen[g.Index] = true
	}
	s := r.moved()
	if len(seen) >= s.Want {
		return r.next("sum", s), nil
	}
	if r.TimedOut() {
		s.Until = time.Time{} // its time has passed: now it waits without end
	}
	return r.wait("gather", s), nil
}

func (p player) rang(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.State.toil(ctx); err != nil {
		return nil, err
	}
	if !r.TimedOut() && len(r.Awaited()) == 0 {
		r.wrong("neither a signal nor a timeout")
	}
	return r.done(), nil
}

// found begins a family; some of its children wait for a signal.
func (p player) found(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	if r.State.Want > 0 {
		return r.await("spawn", r.moved()), nil
	}
	return r.next("spawn", r.moved()), nil
}

func (p player) spawn(_ context.Context, r *run) (fsm.Outcome, error) { return r.round(r.moved()), nil }

// round begins a round of children, in every other family as the nodes of a graph. Every other
// graph has a timeout that never comes.
func (r *run) round(s work) fsm.Outcome {
	r.decide("children", "join", s.N)
	if !s.graphic() {
		return r.ScheduleChildren("join", s, s.brood()...)
	}
	random := rand.New(rand.NewPCG(s.Seed, uint64(1000+s.N))) //nolint:gosec // repeatable
	nodes := make([]fsm.GraphNode, s.Brood)
	for i, spec := range s.brood() {
		nodes[i] = fsm.Node(strconv.Itoa(i), spec)
		for j := range i {
			switch random.IntN(9) {
			case 0, 1:
				nodes[i] = nodes[i].After(strconv.Itoa(j))
			case 2:
				nodes[i] = nodes[i].AfterEnd(strconv.Itoa(j))
			case 3:
				nodes[i] = nodes[i].AfterFailure(strconv.Itoa(j))
			}
		}
	}
	graph := r.ScheduleGraph("join", s, nodes...)
	r.decided.Policy = &policy{Cancel: true}
	if s.Seed%4 == 0 {
		graph, r.decided.Policy = graph.Timeout(time.Hour), &policy{Timeout: true}
	}
	return graph
}

// graphic reports whether the children of a family are nodes.
func (s *work) graphic() bool { return s.Seed%2 == 0 }

func (p player) join(_ context.Context, r *run) (fsm.Outcome, error) {
	saw := of(&r.Info, &r.State)
	saw.Kind, saw.Count = evJoined, int64(len(r.Dropped()))
	for _, c := range r.Children() {
		saw.Children = append(saw.Children, int64(c.ID))
		if !c.Status.Terminal() {
			r.wrongOf(c.ID, fmt.Sprintf("child %d is %s", c.ID, c.Status))
		}
	}
	if len(saw.Children)+len(r.Dropped()) != r.State.Brood {
		r.wrong(fmt.Sprintf("%d children and %d dropped of %d", len(saw.Children), len(r.Dropped()), r.State.Brood))
	}
	p.log.write(saw)
	if r.State.Rounds <= 1 {
		return r.done(), nil
	}
	s := r.moved()
	s.Rounds--
	return r.round(s), nil
}

// brood returns the children of a round, the same at each call but for their times.
func (s *work) brood() []fsm.Spec {
	r := rand.New(rand.NewPCG(s.Seed, uint64(s.N))) //nolint:gosec // repeatable
	specs := make([]fsm.Spec, s.Brood)
	for i := range specs {
		child := work{Label: fmt.Sprintf("%s.%d.%d", s.Label, s.N, i), Fate: "done", Seed: r.Uint64(), Busy: r.IntN(40)}
		switch kind := r.IntN(10); {
		case kind < 3:
			specs[i] = job.New(child)
		case kind == 3:
			child.Fate = "error"
			if r.IntN(2) == 0 {
				child.Until = time.Now().Add(500 * time.Millisecond)
			}
			specs[i] = job.New(child)
		case kind == 4 && !s.graphic(): // its key may be occupied
			specs[i] = job.New(child).Key(fsm.Key(fmt.Sprintf("child:%d", r.IntN(8))))
		case kind == 5:
			specs[i] = job.New(child).PartitionKey(fmt.Sprintf("family:%d", r.IntN(8))).Priority(r.IntN(3) - 1)
		case kind == 6:
			specs[i] = job.New(child).After(time.Duration(r.IntN(300)) * time.Millisecond)
		case kind == 7 && s.Depth > 0:
			child.Brood, child.Rounds, child.Depth = 1+r.IntN(3), 1, s.Depth-1
			specs[i] = family.New(child)
		case kind == 8:
			child.Steps, child.Fate = 2+r.IntN(3), string(fsm.FailureDecided)
			specs[i] = chainOne.New(child).Queue("post")
		default:
			child.Steps = 2 + r.IntN(3)
			specs[i] = chainTwo.New(child)
		}
	}
	return specs
}
