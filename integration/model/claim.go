package model

import (
	"cmp"
	"slices"
	"time"
)

// Claim is the proof that a worker may run a step: the instance as it was claimed, with its fence.
// A fence is the worker, the token and the visit. It holds while the instance is executing with
// exactly these.
type Claim struct {
	Instance
	Ran     bool     // its step has been called
	Lingers bool     // another worker's step may still run under its partition key
	Awaited []Signal // the signals that it awaits, in the inbox at the moment of the claim, oldest first
}

// Claim makes runnable instances of a queue executing, most urgent first, at most limit of them,
// and only of machines that the worker knows.
func (w *World) Claim(worker, queue string, knows func(Machine) bool, limit int, lease time.Duration) []Claim {
	var claims []Claim
	for _, i := range w.Claimable(queue, knows) {
		if len(claims) == limit {
			break
		}
		claims = append(claims, w.claim(i, worker, lease))
	}
	return claims
}

// ClaimOnly claims one instance, if it is claimable.
func (w *World) ClaimOnly(id ID, worker, queue string, knows func(Machine) bool, lease time.Duration) (Claim, bool) {
	for _, i := range w.Claimable(queue, knows) {
		if i.ID == id {
			return w.claim(i, worker, lease), true
		}
	}
	return Claim{}, false
}

func (w *World) claim(i *Instance, worker string, lease time.Duration) Claim {
	w.lastToken++
	w.enter(i)
	i.Status, i.Worker, i.Token, i.Lease = Executing, worker, w.lastToken, w.after(lease)
	return Claim{Instance: *i, Lingers: w.lingers(i.PartitionKey, worker), Awaited: w.Signals(func(s *Signal) bool {
		return s.Target == i.ID && s.Consumed == Never && slices.Contains(i.Awaits, s.Name)
	})}
}

// Claimable lists the instances of a queue that may be claimed, most urgent first. An instance with
// a partition key may be claimed only if nothing executes under that key, in any queue, and it is
// the head of the key in this queue. The order within a key is a promise, so a head that this
// worker does not know, or that another session holds, or that is to be skipped, holds its
// followers back, and no other row.
func (w *World) Claimable(queue string, knows func(Machine) bool) []*Instance {
	var out []*Instance
	headed := map[string]bool{}
	for _, i := range w.ready(queue) {
		if key := i.PartitionKey; key != "" {
			head := !headed[key]
			headed[key] = true
			if !head || w.busy(key) {
				continue
			}
		}
		if knows(i.Machine) && !w.held[i.ID] && !i.Stray && !i.toSkip() && w.May(i, tolerance) {
			out = append(out, i)
		}
	}
	return out
}

// tolerance is what two computations of one debt may differ by.
const tolerance = 1e-9

// ready lists the runnable instances of a queue that are due, in the order of the pick: by
// priority, of which lower is more urgent, then by how long they have been eligible, and then by
// id.
func (w *World) ready(queue string) []*Instance {
	ready := w.Instances(func(i *Instance) bool {
		return i.Queue == queue && i.Status == Runnable && !i.Paused && i.EligibleAt <= w.Now
	})
	slices.SortFunc(ready, func(a, b *Instance) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.EligibleAt, b.EligibleAt), cmp.Compare(a.ID, b.ID))
	})
	return ready
}

func (w *World) busy(partitionKey string) bool {
	return w.first(func(i *Instance) bool { return i.Status == Executing && i.PartitionKey == partitionKey }) != nil
}

// NextDue returns how long it is until another instance of a queue becomes eligible, or Never if
// none is waiting.
func (w *World) NextDue(queue string) Moment {
	next := Never
	for _, i := range w.instances {
		if i.Queue == queue && i.Status == Runnable && !i.Paused && !i.toSkip() && i.EligibleAt > w.Now && (next == Never || i.EligibleAt-w.Now < next) {
			next = i.EligibleAt - w.Now
		}
	}
	return next
}

// NextDeadline returns when the next await times out, or Never if none does.
func (w *World) NextDeadline() Moment {
	next := Never
	for _, i := range w.instances {
		if i.Deadline != Never && (next == Never || i.Deadline < next) {
			next = i.Deadline
		}
	}
	return next
}

// Holds reports whether a claim is current.
func (w *World) Holds(c *Claim) bool {
	i := w.Get(c.ID)
	return i != nil && i.Status == Executing && i.Worker == c.Worker && i.Token == c.Token && i.Visit == c.Visit
}

// holdsLease is Holds for heartbeat and release, which are not outcomes. A kept claim that has
// moved on is still the same claim.
func (w *World) holdsLease(c *Claim) bool {
	i := w.Get(c.ID)
	return i != nil && i.Status == Executing && i.Worker == c.Worker && i.Token == c.Token
}

// Beat extends the leases of claims, counted from now, and returns those that are not current. A
// held instance is neither extended nor returned.
func (w *World) Beat(claims []Claim, lease time.Duration) (lost []ID) {
	for n := range claims {
		switch {
		case w.held[claims[n].ID]:
		case w.holdsLease(&claims[n]):
			w.Get(claims[n].ID).Lease = w.after(lease)
		default:
			lost = append(lost, claims[n].ID)
		}
	}
	return lost
}

// Locked lists the instances of claims that are current, and whose rows another session has locked.
func (w *World) Locked(claims []Claim) (ids []ID) {
	for n := range claims {
		if w.holdsLease(&claims[n]) && w.held[claims[n].ID] {
			ids = append(ids, claims[n].ID)
		}
	}
	return ids
}

// Release gives claims back, with their instances as if they had not been claimed, but for begun
// steps, and counts the claims that were current. It passes over held instances.
func (w *World) Release(claims []Claim) (released int) {
	for n := range claims {
		if w.holdsLease(&claims[n]) && !w.held[claims[n].ID] {
			i := w.Get(claims[n].ID)
			i.Status, i.Begun = Runnable, i.Begun || claims[n].Ran
			i.unclaim()
			released++
		}
	}
	return released
}

// unclaim ends a claim, in any state of the instance. The token stays: it only grows. A place for
// the whole run stays as well.
func (i *Instance) unclaim() { i.Worker, i.Lease, i.Place, i.Seat = "", Never, "", false }
