package work

import (
	"slices"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A signal does not know the queue of its target before the database has found it. So a slot is
// reserved in each queue of this process that offers some, and those that are not needed are given
// back with the answer.

const (
	// wakeQueues bounds the queues of a process whose signals claim: each signal reserves a slot in
	// all of them.
	wakeQueues = 4
	// After wakeMisses signals in a row that have claimed nothing, only one in wakeEach tries: a
	// process that signals the instances of others pays for their claims no longer.
	wakeMisses = 8
	wakeEach   = 16
)

// Waking holds a slot in each idle queue for the instance that a signal may wake. Settle ends it.
type Waking struct {
	process *process
	slots   []*Reservation
}

// ReserveWoken reserves a slot in each queue for an instance that a signal may wake. It returns nil
// if no queue is idle, and in processes with batch steps or many queues.
func (p *process) ReserveWoken() *Waking {
	if p.batches || len(p.queues) > wakeQueues || p.isDraining() {
		return nil
	}
	if p.unclaiming.Load() >= wakeMisses && p.unclaiming.Add(1)%wakeEach != 0 {
		return nil
	}
	w := &Waking{process: p}
	for name, q := range p.queues {
		if some, _ := p.gates.concern(name); some || q.paused.Load() {
			continue
		}
		if r := p.reserve(q, 1, true); r != nil {
			w.slots = append(w.slots, r)
		}
	}
	if len(w.slots) == 0 {
		return nil
	}
	return w
}

// Waker returns what the claim has to be made with.
func (w *Waking) Waker() *store.Waker {
	out := &store.Waker{Worker: w.process.id, Lease: w.process.config.Lease, Machines: w.process.machineIDs,
		Awaited: w.process.config.Env.Limits.AwaitedBytes}
	for _, r := range w.slots {
		out.Queues = append(out.Queues, r.queue.name)
	}
	return out
}

// Settle ends a reservation with what the signal has claimed. The instance is about to run when it
// returns.
func (w *Waking) Settle(claims []*step.Claim, err error) {
	if len(claims) > 0 {
		w.process.unclaiming.Store(0)
	} else {
		w.process.unclaiming.Add(1)
	}
	for _, r := range w.slots {
		others := func(c *step.Claim) bool { return c.Queue != r.queue.name }
		r.Settle(slices.DeleteFunc(slices.Clone(claims), others), err)
	}
}
