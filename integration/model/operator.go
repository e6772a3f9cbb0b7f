package model

import (
	"cmp"
	"slices"
)

// Redrive makes a failed instance runnable at its step. The visit stays the same, so that its
// effects keep their idempotency keys. The instance is neither parked nor paused, nor over its
// deadline. Its round, its await and its join stay unchanged: a child that has been counted is not
// counted again. Redrive refuses while another instance occupies the key, and what only a Restart
// of the graph lets go on: nodes, a root that joins nodes which have failed, and children of a node
// that has failed.
func (w *World) Redrive(id ID) bool {
	i := w.Get(id)
	if i.Node != "" || i.Status != Failed || w.joinsFailed(i) || w.worksForFailed(i) || i.Scope != ScopeNone && w.Occupant(i.Key) != nil && w.Occupant(i.Key) != i {
		return false
	}
	i.Status, i.EligibleAt, i.Failure, i.FinishedAt = Runnable, w.Now, "", Never
	i.Attempt, i.Crashes, i.Paused, i.RunPlace, i.Retried = 0, 0, false, "", i.Joined
	if i.Expiry <= w.Now { // otherwise it would fail again at once
		i.Expiry = Never
	}
	w.operated(i, "retry")
	return true
}

// joinsFailed reports whether an instance stands at the join of a graph of which a node is not
// done, other than one that was skipped as it had to be.
func (w *World) joinsFailed(i *Instance) bool {
	return i.Joins() && slices.ContainsFunc(w.Children(i), func(k *Instance) bool {
		return k.Node != "" && k.Status != Done && (k.Failure != "skipped" || k.Join.Failed == 0)
	})
}

// worksForFailed reports whether the parent of an instance is a node that has failed.
func (w *World) worksForFailed(i *Instance) bool {
	parent := w.Get(i.Parent)
	return parent != nil && parent.Node != "" && parent.Status == Failed
}

// Cancel ends a live instance from outside, whatever it is doing. The claim of an executing one is
// void.
func (w *World) Cancel(id ID) bool {
	i := w.Get(id)
	if !w.cancel(i) {
		return false
	}
	w.join(i)
	w.settle(i)
	return true
}

// cancel ends an instance, and leaves its join.
func (w *World) cancel(i *Instance) bool {
	if i.Status.Terminal() {
		return false
	}
	w.lose(i)
	i.unclaim()
	w.remember(i, "cancel", "cancelled", "")
	i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline, i.Stray = Failed, "cancelled", w.Now, "cancelled", Never, false
	w.operated(i, "cancel")
	return true
}

// CancelFamily cancels an instance and all its live descendants, including the descendants of ended
// ones, children before their parents, so that the parents have had their joins. It returns the ids
// of those it ended, ascending.
func (w *World) CancelFamily(id ID) (ended []ID) {
	member := map[ID]bool{id: true}
	for _, i := range w.instances { // children come after their parents
		member[i.ID] = member[i.ID] || i.Parent != 0 && member[i.Parent]
	}
	family := w.Instances(func(i *Instance) bool { return member[i.ID] })
	slices.SortFunc(family, func(a, b *Instance) int { return cmp.Compare(b.Depth, a.Depth) })
	for from := 0; from < len(family); { // one generation at a time
		var generation []*Instance
		for depth := family[from].Depth; from < len(family) && family[from].Depth == depth; from++ {
			if i := family[from]; w.cancel(i) {
				ended, generation = append(ended, i.ID), append(generation, i)
			}
		}
		w.join(generation...)
		w.settle(generation...)
	}
	slices.Sort(ended)
	return ended
}

// Pause excludes a live instance from claims. It may still be woken, and a claim that it has goes
// on.
func (w *World) Pause(id ID) bool {
	i := w.Get(id)
	if i.Paused || i.Status.Terminal() {
		return false
	}
	i.Paused = true
	w.operated(i, "pause")
	return true
}

// Resume ends the pause of a live instance.
func (w *World) Resume(id ID) bool {
	i := w.Get(id)
	if !i.Paused || i.Status.Terminal() {
		return false
	}
	i.Paused, i.Stray = false, false
	w.operated(i, "resume")
	return true
}

// RunNow makes a waiting runnable instance eligible at once.
func (w *World) RunNow(id ID) bool {
	i := w.Get(id)
	if i.Status != Runnable || i.EligibleAt <= w.Now {
		return false
	}
	i.EligibleAt, i.Stray = w.Now, false
	w.operated(i, "run_now")
	return true
}

// Reschedule makes a runnable instance eligible at a time, or now if that is past.
func (w *World) Reschedule(id ID, at Moment) bool {
	i := w.Get(id)
	if i.Status != Runnable {
		return false
	}
	i.EligibleAt, i.Stray = max(at, w.Now), false
	w.operated(i, "reschedule")
	return true
}

// PauseQueue pauses a queue, or resumes it, and reports whether that changed anything. The tables
// do not keep a claim from a paused queue: a worker looks here before it claims.
func (w *World) PauseQueue(queue string, on bool) bool {
	n, found := slices.BinarySearch(w.paused, queue)
	switch {
	case found == on:
		return false
	case on:
		w.paused = slices.Insert(w.paused, n, queue)
	default:
		w.paused = slices.Delete(w.paused, n, n+1)
	}
	return true
}

// PausedQueues lists the queues that are paused, by name.
func (w *World) PausedQueues() []string { return slices.Clone(w.paused) }
