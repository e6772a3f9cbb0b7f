package model

import (
	"cmp"
	"slices"
	"time"
)

// Kind is the kind of an outcome.
type Kind int

// The eight outcomes.
const (
	Next Kind = iota + 1
	Retry
	Await
	ScheduleChildren
	Finish // "Done" in the specification; here that is a status
	Fail
	Again
	Rejoin
)

// Outcome is the decision of a step.
type Outcome struct {
	Kind     Kind
	Step     string        // Next, Await, ScheduleChildren, Rejoin: the next step
	State    string        // all but Finish and Fail; Again: "" keeps it
	Result   string        // Finish
	Delay    time.Duration // Next, Retry, Again
	At       Moment        // Next: not before; Await: wake at the latest; Never: none
	Timeout  time.Duration // Await; 0: none
	Names    []string      // Await; ScheduleChildren with a policy; Rejoin
	Children []Spec        // ScheduleChildren
	Graph    *Graph        // ScheduleChildren: the children are its nodes; nil: they are no nodes
	Policy   *Policy       // ScheduleChildren, with At, Timeout and Names; nil: all children must end. Rejoin: never nil
	Err      string        // Retry, Fail
	Failure  string        // Fail
	Add      *Additions    // Finish: of a node, alone in its batch
	Unbegun  bool          // Again: the step was not called
	Unless   []string      // Finish, Fail: if a signal of these names waits, the instance goes on at Step, with State ("": kept)
}

// Entry is an outcome to commit.
type Entry struct {
	Claim   Claim
	Outcome Outcome
	Keep    bool // Next without delay only: the claim is kept, and the instance stays executing

	turned bool // it did not end: see Outcome.Unless
}

// Commit applies a batch of outcomes and reports which were applied. An outcome whose claim is not
// current is stale: it changes nothing at all, no inbox, no barrier, no children. A held instance
// is left out, and so is the end of a child whose parent is held, and of a node for which a held
// one waits. Their claims stay. An outcome that adds to a graph which is over is stale, too, and
// its node is cancelled.
//
// The outcomes of a batch are simultaneous. First each changes its own instance, in order of id,
// and then their consequences follow.
func (w *World) Commit(batch []Entry) (applied []bool) {
	applied = make([]bool, len(batch))
	order := make([]int, len(batch))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(batch[a].Claim.ID, batch[b].Claim.ID) })
	each := func(do func(i *Instance, e *Entry)) {
		for _, n := range order {
			if applied[n] {
				do(w.Get(batch[n].Claim.ID), &batch[n])
			}
		}
	}
	for _, n := range order {
		e := &batch[n]
		ends := e.Outcome.Kind == Finish || e.Outcome.Kind == Fail
		applied[n] = w.Holds(&e.Claim) && !w.stuck(w.Get(e.Claim.ID), ends)
		if applied[n] && e.Outcome.Add != nil && w.over(&e.Claim) {
			w.overtaken(w.Get(e.Claim.ID))
			applied[n] = false
		}
	}
	each(func(i *Instance, e *Entry) {
		if w.waits(i, e) {
			e.turned = true
		}
		was := *i
		w.decide(i, e)
		w.happened(&was, i, e)
	})
	each(w.rejoin)
	each(w.consume)
	each(w.spawn)
	each(w.grow)
	var ended []*Instance
	each(func(i *Instance, _ *Entry) {
		if i.Status.Terminal() {
			ended = append(ended, i)
		}
	})
	w.join(ended...)
	w.settle(ended...)
	w.take(w.spawned)
	w.spawned = nil
	return applied
}

// waits reports whether a signal keeps an instance from ending: one that its execution was not
// given.
func (w *World) waits(i *Instance, e *Entry) bool {
	return slices.ContainsFunc(w.Inbox(i.ID), func(s Signal) bool {
		return slices.Contains(e.Outcome.Unless, s.Name) && !slices.ContainsFunc(e.Claim.Awaited, func(g Signal) bool { return g.ID == s.ID })
	})
}

// decide changes the instance itself.
func (w *World) decide(i *Instance, e *Entry) {
	o := &e.Outcome
	if !e.Keep {
		i.unclaim()
	}
	if e.turned {
		on := *o
		on.State = cmp.Or(o.State, i.State)
		i.progress(&on)
		i.Awaits = o.Unless
		w.wake(i)
		return
	}
	switch o.Kind {
	case Next:
		i.progress(o)
		if !e.Keep {
			i.Status, i.EligibleAt = Runnable, w.due(o.Delay, o.At)
		}
	case Retry: // the same visit once more: the signals and the timeout that woke it stay
		if o.Err != "" {
			w.remember(i, "retry", o.Err, "")
		}
		i.Status, i.EligibleAt, i.State = Runnable, w.after(o.Delay), o.State
		i.Attempt++
		i.Begun = true
		i.LastError = cmp.Or(o.Err, i.LastError)
	case Again: // the same attempt of the same visit, later
		i.Status, i.EligibleAt, i.State = Runnable, w.after(o.Delay), cmp.Or(o.State, i.State)
		i.Begun = i.Begun || !o.Unbegun
	case Await:
		i.progress(o)
		i.Status, i.Awaits, i.Deadline = AwaitingSignal, o.Names, o.At
		if o.Timeout > 0 {
			i.Deadline = w.after(o.Timeout)
		}
	case ScheduleChildren:
		i.progress(o)
		i.Status, i.Round, i.Dropped = AwaitingChildren, i.Visit, nil
		w.adopt(i, o)
	case Rejoin:
		i.progress(o)
		i.Status = AwaitingChildren
	case Finish:
		i.Status, i.Result, i.FinishedAt = Done, o.Result, w.Now
		i.Awaits, i.TimedOut, i.LastError = nil, false, ""
	case Fail: // awaits and timed_out stay, for a redrive
		w.remember(i, "fail", o.Err, "")
		i.Status, i.Failure, i.FinishedAt = Failed, o.Failure, w.Now
		i.LastError = cmp.Or(o.Err, i.LastError)
	}
}

// progress begins a new visit.
func (i *Instance) progress(o *Outcome) {
	i.Visit++
	i.Step, i.State = o.Step, o.State
	i.Attempt, i.Crashes, i.LastError = 0, 0, ""
	i.Awaits, i.TimedOut, i.Deadline = nil, false, Never
}

// consume applies an outcome to the inbox. Going on consumes the signals that this execution
// received, and none that came later. Parking and retrying consume nothing. The end of an instance
// is the end of its inbox. The signals of a failed one are kept unseen, since it may be redriven.
func (w *World) consume(i *Instance, e *Entry) {
	kind := e.Outcome.Kind
	if e.turned {
		kind = Next
	}
	switch kind {
	case Next, ScheduleChildren, Rejoin:
		for _, given := range e.Claim.Awaited {
			w.consumeOne(given.ID)
		}
		w.recheck(i, e)
	case Await:
		w.recheck(i, e)
	case Finish:
		w.unread(i, &e.Claim)
		w.deleteSignals(func(s *Signal) bool { return s.Target == i.ID })
	case Retry, Again, Fail:
	}
}

func (w *World) consumeOne(id int) {
	for _, s := range w.signals {
		if s.ID == id && s.Consumed == Never && s.DedupKey != "" {
			s.Consumed, s.Payload = w.Now, ""
		}
	}
	w.deleteSignals(func(s *Signal) bool { return s.ID == id && s.DedupKey == "" })
}

func (w *World) deleteSignals(where func(*Signal) bool) {
	w.signals = slices.DeleteFunc(w.signals, where)
}

// recheck wakes an instance at once if it has parked for a signal that is already there. An
// instance that parks towards its own step is collecting a set: the signals that it has received do
// not count, since otherwise it would spin.
func (w *World) recheck(i *Instance, e *Entry) {
	if !i.Status.Parked() {
		return
	}
	collecting := e.Outcome.Kind == Await && e.Outcome.Step == e.Claim.Step
	for _, s := range w.Inbox(i.ID) {
		given := slices.ContainsFunc(e.Claim.Awaited, func(g Signal) bool { return g.ID == s.ID })
		if slices.Contains(i.Awaits, s.Name) && (!collecting || !given) {
			w.wake(i)
			return
		}
	}
}

// wake makes a parked instance runnable. awaits stays, since the claim finds the instance's signals
// by it.
func (w *World) wake(i *Instance) { i.Status, i.EligibleAt, i.Deadline = Runnable, w.Now, Never }

// spawn inserts children and sets the barrier to those that were really inserted. If there are
// none, the parent goes on at once.
func (w *World) spawn(i *Instance, e *Entry) {
	if e.Outcome.Kind != ScheduleChildren {
		return
	}
	i.Pending = 0
	var nodes []*Instance
	for n := range e.Outcome.Children {
		child := &e.Outcome.Children[n]
		if got := w.insert(child, i); got.Duplicate {
			i.Dropped = append(i.Dropped, Dropped{Index: n, Key: child.Key, Occupant: got.ID})
		} else {
			if i.Pending++; child.Scope != ScopeNone {
				w.spawned = append(w.spawned, child.Key)
			}
			nodes = append(nodes, w.Get(got.ID))
		}
	}
	if g := e.Outcome.Graph; g != nil {
		w.plant(g, nodes)
	}
	if i.Join.Round == amount(i.Round) {
		i.Join.Size = i.Pending
	}
	if i.opens() {
		w.wake(i)
	}
}

// Advanced returns a kept claim as it stands after its outcome.
func (e *Entry) Advanced(w *World) Claim { return Claim{Instance: *w.Get(e.Claim.ID)} }
