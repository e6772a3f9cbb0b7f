package model

// Redrive makes a failed instance runnable at its step: the same visit, so that its effects keep their idempotency keys, and never parked
// again. Nothing of its round, its await or its join changes: a child that has been counted is not counted again. It is refused while
// another instance occupies its key.
func (w *World) Redrive(id ID) bool {
	i := w.Get(id)
	if i.Status != Failed || i.Scope != ScopeNone && w.Occupant(i.Key) != nil && w.Occupant(i.Key) != i {
		return false
	}
	i.Status, i.EligibleAt, i.Failure, i.FinishedAt = Runnable, w.Now, "", Never
	i.Attempt, i.Crashes = 0, 0
	return true
}

// Cancel ends a live instance from outside, whatever it is doing: the claim of one that executes is void.
func (w *World) Cancel(id ID) bool {
	i := w.Get(id)
	if i.Status.Terminal() {
		return false
	}
	i.unclaim()
	i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline = Failed, "cancelled", w.Now, "cancelled", Never
	w.join(i)
	return true
}
