package model

import "slices"

// Policy says how many children wake their parent before all have ended; 0: no number of them does.
type Policy struct {
	Quorum, Failures, Ends int

	CancelRest bool // the others are cancelled when it does not wait for them any more
	Stream     int  // of a stream, with Ends: how many ends a visit is shown at most; 0: it is no stream
}

// Join is the policy of a round, and the counts for it.
type Join struct {
	Policy

	Round              int64
	Size, Done, Failed int
}

// adopt notes the policy of a new round. A round without one, or without children, leaves the
// policy of an earlier round behind, which counts for that one only.
//
// A graph has an empty one at least, and is noted; graphs without live nodes are not any more.
func (w *World) adopt(i *Instance, o *Outcome) {
	if o.Policy == nil && o.Graph == nil || len(o.Children) == 0 {
		return
	}
	i.Join = Join{Round: i.Round}
	if o.Policy != nil {
		i.Join.Policy = *o.Policy
	}
	if o.Graph != nil {
		live := w.liveRounds(i.ID)
		i.Graphs = append(without(i.Graphs, func(r int64) bool { return !slices.Contains(live, r) }), i.Round)
	}
	i.beginStream()
	if i.Join.CancelRest {
		i.Losers = append(slices.Clone(i.Losers), i.Round)
		i.Join.CancelRest = false // not a column: Losers says it
	}
	i.Awaits, i.Deadline = o.Names, o.At
	if o.Timeout > 0 {
		i.Deadline = w.after(o.Timeout)
	}
}

// rejoin makes an instance wait for the children of its newest round that have not ended, under its
// own policy. Ends since it was woken count for that policy: these histories have no steps that
// look at the children. A child counts as it first ended, though it has been retried since: then it
// had failed.
func (w *World) rejoin(i *Instance, e *Entry) {
	o := &e.Outcome
	if o.Kind != Rejoin {
		return
	}
	var size, done, failed, skipped, unshown int
	for _, k := range w.Children(i) {
		if size++; k.Joined && k.Shown == 0 {
			unshown++
		}
		switch {
		case !k.Joined:
		case k.Status == Done && !k.Retried:
			done++
		case k.Failure == "skipped" && !k.Retried:
			skipped++
		default:
			failed++
		}
	}
	newDone, newFailed := max(done-i.Join.Done, 0), max(failed-i.Join.Failed, 0)
	j := Join{Round: i.Visit, Size: size, Done: done, Failed: failed}
	if o.Policy.Quorum > 0 {
		j.Quorum = done - newDone + o.Policy.Quorum
	}
	if o.Policy.Failures > 0 {
		j.Failures = failed - newFailed + o.Policy.Failures
	}
	if o.Policy.Ends > 0 {
		j.Ends = done + failed - newDone - newFailed + o.Policy.Ends
	}
	if i.Most = o.Policy.Stream; i.Most > 0 { // an end that no visit was shown
		j.Ends = done + failed - unshown + o.Policy.Ends
	}
	i.Join, i.Pending = j, size-done-failed-skipped
	i.rearm(o.Policy.CancelRest)
	i.Awaits, i.Deadline = o.Names, o.At
	if o.Timeout > 0 {
		i.Deadline = w.after(o.Timeout)
	}
	if i.opens() {
		w.wake(i)
	}
}

// rearm has the rest of the newest round cancelled once a Rejoin does not wait for it any more. A
// rest that was to be cancelled already stays due, though it is waited for again: its round becomes
// negative.
func (i *Instance) rearm(cancelRest bool) {
	i.Losers = slices.Clone(i.Losers)
	n := slices.Index(i.Losers, i.Round)
	switch {
	case n < 0 && cancelRest && !slices.Contains(i.Losers, -i.Round):
		i.Losers = append(i.Losers, i.Round)
	case n >= 0:
		i.Losers[n] = -i.Round
	}
}

// opens reports whether the children that have ended wake their parent.
func (i *Instance) opens() bool {
	j := &i.Join
	return i.Pending == 0 || j.Round >= i.Round && (j.Quorum > 0 && (j.Done >= j.Quorum || j.Done+i.Pending < j.Quorum) ||
		j.Failures > 0 && j.Failed >= j.Failures || j.Ends > 0 && j.Done+j.Failed >= j.Ends)
}

// join counts children that have ended at once at their parents' barriers, each once in its life,
// and only at the barrier of its round. Then it wakes the parents that need not wait any more.
func (w *World) join(ended ...*Instance) {
	w.number(ended)
	var parents []*Instance
	for _, child := range ended {
		if child.Parent == 0 || child.Joined {
			continue
		}
		child.Joined = true
		parent := w.Get(child.Parent)
		if parent == nil || parent.Round != child.ParentRound || parent.Status != AwaitingChildren {
			continue
		}
		parent.Pending--
		switch {
		case parent.Join.Round < parent.Round:
		case child.Status == Done:
			parent.Join.Done++
		case child.Failure == "skipped": // what it was skipped for has counted, or is no failure
		default:
			parent.Join.Failed++
		}
		if !slices.Contains(parents, parent) {
			parents = append(parents, parent)
		}
	}
	for _, parent := range parents {
		if parent.opens() {
			w.wake(parent)
		}
	}
}

// due returns the rounds of an instance whose rest is to be cancelled: those that it does not wait
// for, and once it has ended those that are graphs.
func (i *Instance) due() (rounds []int64) {
	for _, r := range i.Losers {
		if i.Status != AwaitingChildren || r != i.Round {
			rounds = append(rounds, amount(r))
		}
	}
	if i.Status.Terminal() {
		rounds = append(rounds, i.Graphs...)
	}
	return rounds
}

// RestDue reports whether any instance has such a round.
func (w *World) RestDue() bool {
	return w.first(func(i *Instance) bool { return len(i.due()) > 0 }) != nil
}

// dueRounds returns the due rounds of all instances that are not held.
func (w *World) dueRounds() map[ID][]int64 {
	rounds := map[ID][]int64{}
	for _, i := range w.instances {
		if due := i.due(); len(due) > 0 && !w.held[i.ID] {
			rounds[i.ID] = due
		}
	}
	return rounds
}

// lostText is the last error of a loser.
const lostText = "cancelled: its parent does not wait for it any more"

// retriedLoser reports whether a child was cancelled as a loser, and runs again by an operator's
// verb: its parent does not count it, and it goes on.
func (i *Instance) retriedLoser() bool {
	return i.Joined && slices.ContainsFunc(i.Errors, func(e Error) bool { return e.Kind == "cancel" && e.Text == lostText })
}

// Losers lists the live children of due rounds, but for those that were retried.
func (w *World) Losers() (losers []ID) {
	rounds := w.dueRounds()
	for _, i := range w.instances {
		if i.Parent != 0 && slices.Contains(rounds[i.Parent], amount(i.ParentRound)) && !i.Status.Terminal() && !i.retriedLoser() && !w.held[i.ID] {
			losers = append(losers, i.ID)
		}
	}
	return losers
}

// CancelRest cancels some losers, all at once. What these have spawned becomes due itself. A round
// without live children is forgotten.
func (w *World) CancelRest(losers []ID) {
	rounds := w.dueRounds()
	spawned := make([][]int64, len(losers))
	for n, id := range losers {
		spawned[n] = w.liveRounds(id)
	}
	ended := make([]*Instance, len(losers))
	for n, id := range losers {
		const text = lostText
		i := w.Get(id)
		was := *i
		w.lose(i)
		i.unclaim()
		w.remember(i, "cancel", text, "")
		i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline, i.Stray = Failed, "cancelled", w.Now, text, Never, false
		i.Losers = spawned[n]
		w.swept(&was, i, "join.cancel", text)
		ended[n] = i
	}
	for id, due := range rounds {
		i := w.Get(id)
		var live []int64
		for _, k := range w.Instances(func(k *Instance) bool { return k.Parent == id && !k.Status.Terminal() && !k.retriedLoser() }) {
			live = append(live, amount(k.ParentRound))
		}
		over := func(r int64) bool { return slices.Contains(due, amount(r)) && !slices.Contains(live, amount(r)) }
		i.Losers, i.Graphs = without(i.Losers, over), without(i.Graphs, over)
	}
	w.join(ended...)
}

// without returns the rounds that are left, nil if none is.
func without(rounds []int64, over func(int64) bool) []int64 {
	if rounds = slices.DeleteFunc(slices.Clone(rounds), over); len(rounds) == 0 {
		return nil
	}
	return rounds
}

// liveRounds returns the rounds in which an instance has live children, ascending.
func (w *World) liveRounds(id ID) (rounds []int64) {
	for _, k := range w.Instances(func(k *Instance) bool { return k.Parent == id && !k.Status.Terminal() }) {
		rounds = append(rounds, k.ParentRound)
	}
	slices.Sort(rounds)
	return slices.Compact(rounds)
}
