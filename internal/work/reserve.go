package work

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// An instance that this process inserts, and would claim at once, is inserted as claimed already:
// see store/insert_claimed.go. For that, an insert reserves a slot for each instance before it is
// sent, and hands the claims over, or the slots back, when it is answered. Likewise a signal claims
// the instance that it wakes: see store/signal_claimed.go.
//
// A scheduler offers its free slots only while its queue is idle as far as it knows: its last claim
// began at the front of the queue and came back short, nothing has been announced since, and
// nothing waits for a slot. So it overtakes only instances that came from elsewhere within the last
// poll, of which this process does not know. When the poll finds it, the offer ends until a claim
// comes back short again. As long as instances are inserted as claimed, the queue is polled every
// PollMin. Under load the queue is never idle, and all goes by claims.
//
// At gates nothing is offered: a claim has to find a place. Nor while an earlier claim is in doubt:
// the claims that this process does not know of are given back then, and one whose insert is not
// answered yet would be among them. For the same reason that waits until no slot is reserved.

// Reservation holds slots of a queue for instances that are about to be inserted as claimed, or for
// one that a signal is about to claim. Settle ends it, or statementTimeout: an insert whose answer
// the network swallows holds up no other insert.
type Reservation struct {
	process *process
	queue   *queue
	slots   int
	sent    time.Duration
	late    *time.Timer
	over    atomic.Bool
	signal  bool
}

// settled is the end of a reservation.
type settled struct {
	slots  int
	claims []*step.Claim
	sent   time.Duration
	took   time.Duration
	doubt  bool // the insert may have taken effect, and nobody knows of its claims
	signal bool
}

// Reserve reserves a slot for each of some specs, or returns nil: if one of them would not be
// claimed at once, is of a step that this worker does not know or runs in batches, or if its queue
// is not idle, or has too few free slots.
func (p *process) Reserve(list []*step.Spec) *Reservation {
	if len(list) == 0 {
		return nil
	}
	q := p.queues[list[0].Queue]
	if q == nil || q.offer.Load() < int64(len(list)) || !store.MayClaim(list) || q.paused.Load() || p.isDraining() {
		return nil
	}
	for _, x := range list {
		r := p.routes[store.StepKey{Machine: x.Machine, Version: x.Version, Step: x.Step}]
		if r == nil || r.machine.Steps[r.step].Batch != nil {
			return nil
		}
	}
	return p.reserve(q, len(list), false)
}

// reserve reserves slots of a queue, or returns nil if it does not offer as many.
func (p *process) reserve(q *queue, slots int, signal bool) *Reservation {
	if !q.takeOffered(int64(slots)) {
		return nil
	}
	r := &Reservation{process: p, queue: q, slots: slots, sent: p.since(), signal: signal}
	r.late = time.AfterFunc(statementTimeout, r.expire)
	return r
}

// expire gives the slots back before the insert is answered.
func (r *Reservation) expire() {
	if r.over.CompareAndSwap(false, true) {
		r.queue.settled.add(settled{slots: r.slots, sent: r.sent, doubt: true})
	}
}

// Worker returns what the claims have to be made with.
func (r *Reservation) Worker() (id string, lease time.Duration) {
	return r.process.id, r.process.config.Lease
}

// Settle ends a reservation: with the claims that were made, if any, or with the error of the
// insert. The instances are about to run when it returns.
func (r *Reservation) Settle(claims []*step.Claim, err error) {
	r.late.Stop()
	done := settled{slots: r.slots, claims: claims, sent: r.sent, took: r.process.since() - r.sent, doubt: store.Unknown(err), signal: r.signal}
	if !r.over.CompareAndSwap(false, true) {
		r.settleLate(&done)
		return
	}
	if !r.queue.settled.add(done) {
		r.process.disown(claims)
	}
}

// settleLate processes the answer to an insert whose slots have been given back. The claims that
// the process did not know of were given back with them; it gives back those that came since.
func (r *Reservation) settleLate(done *settled) {
	r.process.disown(done.claims)
	if done.doubt {
		r.queue.doubt.Store(true)
	}
	r.queue.nudge()
}

// settlements holds reservations that have ended until the scheduler processes them. An insert
// never waits for the scheduler, which may be waiting for a hook.
type settlements struct {
	some chan struct{} // has an element if list may have one

	mu   sync.Mutex
	list []settled
	over bool // the scheduler has ended
}

// add adds the end of a reservation, and reports whether the scheduler will process it.
func (q *settlements) add(one settled) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return false
	}
	q.list = append(q.list, one)
	select {
	case q.some <- struct{}{}:
	default:
	}
	return true
}

// take returns what there is.
func (q *settlements) take() []settled {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// close returns what there is. From then on add refuses.
func (q *settlements) close() []settled {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	return q.list
}

// disown gives claims back that came after the end of their scheduler or of their reservation.
func (p *process) disown(claims []*step.Claim) {
	if len(claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.config.DrainGrace)
	defer cancel()
	if _, err := p.db.Release(ctx, p.id, claims); err != nil {
		p.trouble("give claims back", err) // they are left to their leases
	}
}

// Doubt says that instances of a queue may have been inserted as claimed after all, although their
// insert got no answer: what no flight has is given back before the next claim.
func (p *process) Doubt(name string) {
	if q := p.queues[name]; q != nil {
		q.doubt.Store(true)
		q.nudge()
	}
}

// takeOffered takes slots from the offer, all or none.
func (q *queue) takeOffered(n int64) bool {
	for {
		left := q.offer.Load()
		if left < n {
			return false
		}
		if q.offer.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// withdraw ends the offer of free slots. Those that were taken from it are reserved.
func (s *scheduler) withdraw() {
	s.reserved += s.offered - int(s.offer.Swap(0))
	s.offered = 0
}

// offerSlots offers the free slots if the queue is idle.
func (s *scheduler) offerSlots() {
	if !s.clear || s.ready || s.unsure || s.asked > 0 || len(s.buffer)+len(s.collector.due) > 0 || s.paused.Load() || s.isDraining() {
		return
	}
	if some, _ := s.gates.concern(s.name); some {
		return
	}
	aside := int(s.aside.Load())
	if n := s.conf.Concurrency - s.running - s.reserved - max(0, s.parked-aside); n > 0 {
		s.offered = n
		s.offer.Store(int64(n))
	}
}

// drainSettled makes flights of instances that were inserted as claimed while the worker drains.
// Stop gives them back.
func (s *scheduler) drainSettled(last bool) {
	list := s.settled.take
	if last {
		list = s.settled.close
	}
	for _, r := range list() {
		s.reserved -= r.slots
		s.unsure = s.unsure || r.doubt
		s.flights.launch(s.queue, r.claims, r.sent)
	}
}

// settle processes the end of a reservation.
func (s *scheduler) settle(r settled) {
	s.reserved -= r.slots
	s.unsure = s.unsure || r.doubt
	s.ready = s.ready || r.doubt
	if len(r.claims) == 0 {
		return
	}
	s.entered.Store(true)
	s.admit(s.withoutStrays(s.flights.launch(s.queue, r.claims, r.sent)))
	tell(s.base, s.process, s.hooks.pick,
		worker.PickEvent{Queue: s.name, Wanted: r.slots, Got: len(r.claims), Took: r.took, Inserted: !r.signal, Signalled: r.signal})
	tell(s.base, s.process, s.hooks.saturation,
		worker.SaturationEvent{Queue: s.name, Running: s.running, Buffered: len(s.buffer), Slots: s.conf.Concurrency})
}
