package model

// A stranger may hold an instance: its transaction has locked the row, as one that signals to it
// does, and is not over. Whoever can do without the row goes on as if it were not held, and what
// needs it is done when it is free: nothing is lost, and nothing else waits. What has to wait for
// the row itself (a delivery, an operator's verb, a release) is not an operation of the model
// meanwhile.

// Hold has a stranger hold an instance.
func (w *World) Hold(id ID) {
	if w.held == nil {
		w.held = map[ID]bool{}
	}
	w.held[id] = true
}

// LetGo ends the stranger's transaction.
func (w *World) LetGo() { w.held = nil }

// Held reports whether a stranger holds an instance.
func (w *World) Held(id ID) bool { return w.held[id] }

// stuck reports whether an instance cannot be changed for now: it is held or, if it would end and
// be counted at its parent's barrier, its parent is.
func (w *World) stuck(i *Instance, ends bool) bool {
	return w.held[i.ID] || ends && i.Parent != 0 && w.held[i.Parent]
}
