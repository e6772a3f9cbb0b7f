package model

import "slices"

// Policy says how many children wake their parent before all have ended; 0: no number of them does.
type Policy struct {
	Quorum, Failures, Ends int

	CancelRest bool // the others are cancelled when it does not wait for them any more
}

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
	if i.Join.CancelRest {
		i.Losers = append(slices.Clone(i.Losers), i.Round)
		i.Join.CancelRest = false // not a column: Losers says it
	}
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

// due returns the rounds of an instance that it does not wait for, and whose rest is to be
// cancelled.
func (i *Instance) due() (rounds []int64) {
	for _, r := range i.Losers {
		if i.Status != AwaitingChildren || r != i.Round {
			rounds = append(rounds, r)
		}
	}
	return rounds
}

// RestDue reports whether any instance has such a round.
func (w *World) RestDue() bool {
	return w.first(func(i *Instance) bool { return len(i.due()) > 0 }) != nil
}

// CancelRest cancels the live children of due rounds. What these have spawned becomes due itself. A
// round without live children is forgotten.
func (w *World) CancelRest() (cancelled []ID) {
	rounds := map[ID][]int64{}
	for _, i := range w.instances {
		if due := i.due(); len(due) > 0 && !w.held[i.ID] {
			rounds[i.ID] = due
		}
	}
	losers := w.Instances(func(i *Instance) bool {
		return i.Parent != 0 && slices.Contains(rounds[i.Parent], i.ParentRound) && !i.Status.Terminal() && !w.held[i.ID]
	})
	spawned := make([][]int64, len(losers)) // all of them end at once
	for n, i := range losers {
		spawned[n] = w.liveRounds(i.ID)
	}
	for n, i := range losers {
		const text = "cancelled: its parent does not wait for it any more"
		was := *i
		w.lose(i)
		i.unclaim()
		w.remember(i, "cancel", text, "")
		i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline, i.Stray = Failed, "cancelled", w.Now, text, Never, false
		i.Losers = spawned[n]
		w.swept(&was, i, "join.cancel", text)
		cancelled = append(cancelled, i.ID)
	}
	for id, due := range rounds {
		i := w.Get(id)
		live := w.liveRounds(id)
		i.Losers = slices.DeleteFunc(slices.Clone(i.Losers), func(r int64) bool { return slices.Contains(due, r) && !slices.Contains(live, r) })
		if len(i.Losers) == 0 {
			i.Losers = nil
		}
	}
	w.join(losers...)
	return cancelled
}

// liveRounds returns the rounds in which an instance has live children, ascending.
func (w *World) liveRounds(id ID) (rounds []int64) {
	for _, k := range w.Instances(func(k *Instance) bool { return k.Parent == id && !k.Status.Terminal() }) {
		rounds = append(rounds, k.ParentRound)
	}
	slices.Sort(rounds)
	return slices.Compact(rounds)
}
