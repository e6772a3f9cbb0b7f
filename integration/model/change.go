package model

import (
	"slices"
	"strings"
)

// Copy is what an operator has read of an instance when he decides what becomes of it.
type Copy struct {
	Machine Machine
	Visit   int64
	State   string
}

// CopyOf reads a copy.
func CopyOf(i *Instance) Copy { return Copy{Machine: i.Machine, Visit: i.Visit, State: i.State} }

// mayChange reports whether an edit that was decided from a copy applies: no worker executes the
// instance, and no reader has its result, and it is as it was read.
func (i *Instance) mayChange(from Copy) bool {
	return i.Status != Executing && i.Status != Done && CopyOf(i) == from
}

// Edit changes the state of an instance and nothing else. New keys move the visit, and so are
// refused where children join at it, and where a node waits, or finds what it has waited for.
func (w *World) Edit(id ID, from Copy, state string, newKeys bool) bool {
	i := w.Get(id)
	if !i.mayChange(from) || newKeys && (i.Round != 0 && (amount(i.Round) == i.Visit || i.Join.Round == i.Visit) || i.Node != "" && i.Visit == 0) {
		return false
	}
	i.State = state
	if newKeys {
		i.Visit++
	}
	return true
}

// Rewind makes an instance go on at another step, as progress to it would: it awaits nothing any
// more, its round of children is over, and attempts count anew. The signals in its inbox stay. A
// failed instance runs again as after Redrive. A node is not rewound that has failed, or is at its
// first visit.
func (w *World) Rewind(id ID, from Copy, step, state string) bool {
	i := w.Get(id)
	failed := i.Status == Failed
	if i.Node != "" && (failed || i.Visit == 0) {
		return false
	}
	if !i.mayChange(from) || failed && i.Scope != ScopeNone && w.Occupant(i.Key) != nil && w.Occupant(i.Key) != i {
		return false
	}
	if failed {
		i.Paused, i.RunPlace, i.Retried = false, "", i.Joined
		if i.Expiry <= w.Now {
			i.Expiry = Never
		}
	}
	if i.Status == AwaitingChildren { // those that live go on, also where the join would cancel the rest
		round := i.Round
		i.Losers = without(i.Losers, func(r int64) bool { return r == round })
	}
	i.Status, i.Step, i.State, i.EligibleAt = Runnable, step, state, w.Now
	i.Visit++
	i.Awaits, i.TimedOut, i.Deadline, i.Pending = nil, false, Never, 0
	i.Attempt, i.Crashes, i.LastError, i.Failure, i.FinishedAt, i.Stray = 0, 0, "", "", Never, false
	return true
}

// Unconverted begins the last error of an instance that is paused since its state could not be
// converted.
const Unconverted = "cannot become version "

// Migrate brings a live instance that no worker executes to another version of its machine. All but
// version, step and state stays: the visit, what it waits for, its pause, unless that is for a
// state that could not be converted. A held instance is left alone.
func (w *World) Migrate(id ID, from, to Machine, step, state string) bool {
	i := w.Get(id)
	if i.Machine != from || i.Status.Terminal() || i.Status == Executing || w.held[id] {
		return false
	}
	i.Machine, i.Step, i.State, i.Stray = to, step, state, false
	if i.Paused && strings.HasPrefix(i.LastError, Unconverted) {
		i.Paused, i.LastError = false, ""
	}
	return true
}

// SetAside gives claims back, as Release: their worker does not know their step, so that only who
// knows it may claim them; or their state cannot be converted, which is the fault, so that they are
// paused.
func (w *World) SetAside(claims []Claim, fault string) (released int) {
	for n := range claims {
		i := w.Get(claims[n].ID)
		if !w.holdsLease(&claims[n]) || w.held[claims[n].ID] {
			continue
		}
		w.Release(claims[n : n+1])
		released++
		if i.Stray = fault == ""; !i.Stray {
			i.Paused, i.LastError = true, fault
		}
	}
	return released
}

// Recall brings the strays of a queue that stand at steps which a worker knows to the front, if
// they are due and not held. It returns them.
func (w *World) Recall(queue string, knows func(m Machine, step string) bool) (recalled []ID) {
	for _, i := range w.ready(queue) {
		if i.Stray && knows(i.Machine, i.Step) && !w.held[i.ID] {
			i.Stray = false
			recalled = append(recalled, i.ID)
		}
	}
	slices.Sort(recalled)
	return recalled
}
