package model

import "slices"

// Policy says how many children wake their parent before all have ended; 0: no number of them does.
type Policy struct{ Quorum, Failures, Ends int }

// Join is the policy of a round, and what has been counted for it.
type Join struct {
	Policy

	Round              int64
	Size, Done, Failed int
}

// adopt notes the policy of a new round. A round without one, or without children, leaves that of
// an earlier round behind, which counts for that one only.
func (w *World) adopt(i *Instance, o *Outcome) {
	if o.Policy == nil || len(o.Children) == 0 {
		return
	}
	i.Join = Join{Policy: *o.Policy, Round: i.Round}
	i.Awaits, i.Deadline = o.Names, o.At
	if o.Timeout > 0 {
		i.Deadline = w.after(o.Timeout)
	}
}

// opens reports whether the children that have ended wake their parent.
func (i *Instance) opens() bool {
	j := &i.Join
	return i.Pending == 0 || j.Round == i.Round && (j.Quorum > 0 && (j.Done >= j.Quorum || j.Done+i.Pending < j.Quorum) ||
		j.Failures > 0 && j.Failed >= j.Failures || j.Ends > 0 && j.Done+j.Failed >= j.Ends)
}

// join counts children that have ended at once at their parents' barriers, each once in its life,
// and only at the barrier of its own round. Then it wakes the parents that need not wait any more.
func (w *World) join(ended ...*Instance) {
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
		case parent.Join.Round != parent.Round:
		case child.Status == Done:
			parent.Join.Done++
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
