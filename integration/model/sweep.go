package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Reap ends the claims whose lease has expired, which counts as a crash. The instance runs again as
// another attempt, unless that would exceed the crash limit of its machine. limit returns 0 if
// there is none, or the reaper does not know it. Those over the limit end in pages, which are the
// engine's to choose: a parent may wake for one page, and does not count the next then. An instance
// on none of them ends last.
func (w *World) Reap(limit func(Machine) int, pages [][]ID) (released int, failed []ID) {
	ended := make([][]*Instance, len(pages)+1)
	for _, i := range w.instances {
		if i.Status != Executing || i.Lease >= w.Now {
			continue
		}
		text, most := "lost its worker", limit(i.Machine)
		over := most > 0 && i.Crashes >= most
		if w.stuck(i, over) {
			continue
		}
		if over {
			text = fmt.Sprintf("lost its worker %d times at step %s: over the crash limit", i.Crashes+1, i.Step)
		}
		was := *i
		w.remember(i, "crash", text, i.Worker)
		w.lose(i)
		i.unclaim()
		i.Attempt++
		i.Crashes++
		if over {
			i.Status, i.Failure, i.FinishedAt, i.LastError = Failed, "crashes", w.Now, text
			w.swept(&was, i, "crash", text)
			failed = append(failed, i.ID)
			n := slices.IndexFunc(pages, func(page []ID) bool { return slices.Contains(page, i.ID) })
			if n < 0 {
				n = len(pages)
			}
			ended[n] = append(ended[n], i)
			continue
		}
		i.Status = Runnable
		w.swept(&was, i, "crash", text)
		if i.Crashes > 1 { // the first reap keeps the place in the queue
			i.EligibleAt = w.after(reapDelay(i.Crashes))
		}
		released++
	}
	for _, page := range ended {
		w.join(page...)
		w.settle(page...)
	}
	return released, failed
}

// reapDelay is 1 s · 2^(crashes−2), at most 5 min: an instance that kills its process must not take
// the whole fleet down.
func reapDelay(crashes int) time.Duration {
	delay := time.Second
	for range crashes - 2 {
		delay = min(2*delay, 5*time.Minute)
	}
	return delay
}

// TimeOut wakes the instances whose await has timed out, with the signals that have arrived. That
// is a wake, not a failure. awaits stays, so that a claim also brings a signal that arrives before
// it.
func (w *World) TimeOut() (woken int) {
	for _, i := range w.instances {
		if i.Status.Parked() && i.Deadline != Never && i.Deadline <= w.Now && !w.held[i.ID] {
			w.wake(i)
			i.TimedOut = true
			woken++
		}
	}
	return woken
}

// overdue reports whether an instance is over its deadline. Only its worker ends an executing one.
func (w *World) overdue(i *Instance) bool {
	return i.Expiry != Never && i.Expiry <= w.Now && !i.Status.Terminal() && i.Status != Executing
}

// Overdue reports whether any instance is over its deadline.
func (w *World) Overdue() bool { return w.first(w.overdue) != nil }

// Late lists the instances that a sweep of deadlines fails, the oldest deadline first.
func (w *World) Late() []*Instance {
	late := w.Instances(func(i *Instance) bool { return w.overdue(i) && !w.stuck(i, true) })
	slices.SortStableFunc(late, func(a, b *Instance) int { return cmp.Compare(a.Expiry, b.Expiry) })
	return late
}

// Expire fails a page of instances that are over their deadline, whatever they wait for. say
// renders a moment. They end at once: a parent among them does not wake for a child that is one,
// too.
func (w *World) Expire(page []*Instance, say func(Moment) string) {
	for _, i := range page {
		text := fmt.Sprintf("over its deadline of %s at step %s, %s", say(i.Expiry), i.Step, i.Status)
		if i.Paused {
			text += ", paused"
		}
		w.remember(i, "deadline", text, "")
		i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline, i.Stray = Failed, "deadline", w.Now, text, Never, false
		w.swept(i, i, "deadline", text)
	}
	w.join(page...)
	w.settle(page...)
}

// Retention defines how long ended instances are kept, and how many tombstones of a live one.
type Retention struct {
	Done, Failed time.Duration
	Tombstones   int
}

// Prune deletes instances past their retention, with their inboxes, and the oldest tombstones of
// instances that have too many. A child of its parent's current round stays until the parent is due
// itself, and those above it, whose joining steps may yet be retried or redriven. So it does while
// one of these has failed, and is kept for another below it: a Restart runs all of it again. A node
// stays until those behind it have begun. A parent stays until its last child has gone.
func (w *World) Prune(keep Retention) (instances, tombstones int) {
	for {
		gone := w.first(func(i *Instance) bool { return w.prunable(i, keep) })
		if gone == nil {
			break
		}
		instances++
		w.deleteSignals(func(s *Signal) bool { return s.Target == gone.ID })
		w.uproot(gone.ID)
		w.instances = slices.DeleteFunc(w.instances, func(i *Instance) bool { return i == gone })
	}
	for _, i := range w.instances {
		if !w.held[i.ID] {
			tombstones += w.pruneTombstones(i.ID, keep.Tombstones)
		}
	}
	return instances, tombstones
}

func (w *World) prunable(i *Instance, keep Retention) bool {
	if w.held[i.ID] || !w.expired(i, keep) {
		return false
	}
	for c, p := i, w.Get(i.Parent); p != nil && p.Round == c.ParentRound; c, p = p, w.Get(p.Parent) {
		if !w.expired(p, keep) || p.Status == Failed && w.keptFor(p.ID, keep) {
			return false
		}
	}
	for _, e := range w.edges {
		if to := w.Get(e.To); e.From == i.ID && to != nil && to.Visit == 0 && !to.Status.Terminal() {
			return false
		}
	}
	return w.first(func(c *Instance) bool { return c.Parent == i.ID }) == nil
}

// keptFor reports whether anything below an instance is kept in its own right.
func (w *World) keptFor(id ID, keep Retention) bool {
	return w.first(func(k *Instance) bool {
		return k.Parent == id && (!w.expired(k, keep) || w.keptFor(k.ID, keep))
	}) != nil
}

func (w *World) expired(i *Instance, keep Retention) bool {
	retention := keep.Done
	if i.Status == Failed {
		retention = keep.Failed
	}
	return i.Status.Terminal() && i.FinishedAt+Moment(retention) < w.Now
}

func (w *World) pruneTombstones(target ID, most int) (gone int) {
	tombstones := w.Signals(func(s *Signal) bool { return s.Target == target && s.Consumed != Never })
	slices.SortFunc(tombstones, func(a, b Signal) int { return cmp.Or(cmp.Compare(a.Consumed, b.Consumed), cmp.Compare(a.ID, b.ID)) })
	for _, t := range tombstones[:max(0, len(tombstones)-most)] {
		w.deleteSignals(func(s *Signal) bool { return s.ID == t.ID })
		gone++
	}
	return gone
}
