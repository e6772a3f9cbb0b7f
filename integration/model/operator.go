package model

import (
	"cmp"
	"slices"
)

// Redrive makes a failed instance runnable at its step: the same visit, so that its effects keep their idempotency keys, and never parked
// again, nor paused, nor over its deadline. Nothing of its round, its await or its join changes: a child that has been counted is not counted again. It is refused while
// another instance occupies its key.
func (w *World) Redrive(id ID) bool {
	i := w.Get(id)
	if i.Status != Failed || i.Scope != ScopeNone && w.Occupant(i.Key) != nil && w.Occupant(i.Key) != i {
		return false
	}
	i.Status, i.EligibleAt, i.Failure, i.FinishedAt = Runnable, w.Now, "", Never
	i.Attempt, i.Crashes, i.Paused = 0, 0, false
	if i.Expiry <= w.Now { // it would only fail again
		i.Expiry = Never
	}
	return true
}

// Cancel ends a live instance from outside, whatever it is doing: the claim of one that executes is void.
func (w *World) Cancel(id ID) bool {
	i := w.Get(id)
	if i.Status.Terminal() {
		return false
	}
	i.unclaim()
	w.remember(i, "cancel", "cancelled", "")
	i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline = Failed, "cancelled", w.Now, "cancelled", Never
	w.join(i)
	return true
}

// CancelFamily cancels an instance and all its descendants that are live, also those of what has ended; children before their parents, so
// that the parents have had their joins. It returns whom it ended, by ascending id.
func (w *World) CancelFamily(id ID) (ended []ID) {
	member := map[ID]bool{id: true}
	for _, i := range w.instances { // children come after their parents
		member[i.ID] = member[i.ID] || i.Parent != 0 && member[i.Parent]
	}
	family := w.Instances(func(i *Instance) bool { return member[i.ID] })
	slices.SortFunc(family, func(a, b *Instance) int { return cmp.Compare(b.Depth, a.Depth) })
	for _, i := range family {
		if w.Cancel(i.ID) {
			ended = append(ended, i.ID)
		}
	}
	slices.Sort(ended)
	return ended
}

// Pause takes a live instance out of the claimable ones. What wakes it, or has it claimed, goes on.
func (w *World) Pause(id ID) bool {
	i := w.Get(id)
	if i.Paused || i.Status.Terminal() {
		return false
	}
	i.Paused = true
	return true
}

// Resume ends the pause of a live instance.
func (w *World) Resume(id ID) bool {
	i := w.Get(id)
	if !i.Paused || i.Status.Terminal() {
		return false
	}
	i.Paused = false
	return true
}

// RunNow makes a runnable instance eligible that is to wait.
func (w *World) RunNow(id ID) bool {
	i := w.Get(id)
	if i.Status != Runnable || i.EligibleAt <= w.Now {
		return false
	}
	i.EligibleAt = w.Now
	return true
}

// Reschedule makes a runnable instance eligible at a time; a past one is now.
func (w *World) Reschedule(id ID, at Moment) bool {
	i := w.Get(id)
	if i.Status != Runnable {
		return false
	}
	i.EligibleAt = max(at, w.Now)
	return true
}

// PauseQueue pauses a queue, or resumes it, and reports whether that changed anything. What claims from it
// is no matter of the tables: a worker looks here before it claims.
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
