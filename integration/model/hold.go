package model

// Another session may hold an instance: its open transaction has locked the row, like one that
// signals to the instance. Operations that can do without the row go on as if it were not held, and
// those that need it are done once it is free. Nothing is lost, and nothing else waits. Operations
// that have to wait for the row itself (a delivery, an operator's verb) do not occur in the model
// meanwhile.

// Hold makes another session hold an instance.
func (w *World) Hold(id ID) {
	if w.held == nil {
		w.held = map[ID]bool{}
	}
	w.held[id] = true
}

// LetGo ends the other session's transaction.
func (w *World) LetGo() { w.held = nil }

// Held reports whether another session holds an instance.
func (w *World) Held(id ID) bool { return w.held[id] }

// stuck reports whether an instance cannot be changed for now: another session holds it or, if it
// would end and be counted at its parent's barrier, its parent, or a node that waits for it.
func (w *World) stuck(i *Instance, ends bool) bool {
	return w.held[i.ID] || ends && i.Parent != 0 && (w.held[i.Parent] || w.HeldBehind(i.ID))
}
