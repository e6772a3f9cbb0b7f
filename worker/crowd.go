package worker

import (
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

const (
	// scouts is how many of a crowd find out whether their parent's row is free, and crowdPatience how
	// long it has been held by then: a row that siblings lock in turn is free again at once.
	scouts        = 8
	crowdPatience = 250 * time.Millisecond

	// A child that does not begin, since too many siblings wait for its parent, comes again after as
	// long as they have waited, within these bounds.
	crowdLeast = time.Second
	crowdMost  = 30 * time.Second
)

// crowds knows the parents for whose rows ends of children wait: see held.
//
// Somebody may hold a parent of any number of children. Each child that ends waits for it outside
// of the slots, where there is room for heldMost, and beyond that in its slot: then the queue would
// stop. So once half of that room is taken, no other child of such a parent begins. It goes back as
// by an Again, which changes no row but its own, and the queue goes on behind it. The other half is
// for those that run at that time.
//
// The ends that wait cost little more than one of them does. Once the row has been held for
// crowdPatience, only scouts of them try, one after the other since any of them may have a row of
// its own held, and with growing pauses. As soon as one has been committed, the others follow.
type crowds struct {
	mu  sync.Mutex
	all map[int64]*crowd
}

// crowd is the ends that wait for one parent.
type crowd struct {
	number int
	since  time.Duration // by process.since: from then on, none has been committed
	next   time.Duration // when scouts try again
}

// joins counts an end that waits for its own row, or for its parent's.
func (cs *crowds) joins(parent int64, now time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all == nil {
		cs.all = map[int64]*crowd{}
	}
	c := cs.all[parent]
	if c == nil {
		c = &crowd{since: now}
		cs.all[parent] = c
	}
	c.number++
}

// leaves counts that an end does not wait any more. It reports whether others do that may follow
// it at once, since it has been committed.
func (cs *crowds) leaves(parent int64, committed bool, now time.Duration) (follow bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[parent]
	if c.number--; c.number == 0 {
		delete(cs.all, parent)
		return false
	}
	if !committed {
		return false
	}
	follow = now-c.since >= crowdPatience
	c.since, c.next = now, 0
	return follow
}

// scout returns how many ends of a crowd may try now, and when the others come to it.
func (cs *crowds) scout(parent int64, now time.Duration) (n int, next time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[parent]
	held := now - c.since
	switch {
	case held < crowdPatience || c.number <= scouts:
		return c.number, 0
	case c.next > now:
		return 0, c.next
	}
	c.next = now + min(heldLate, held/4)
	return scouts, c.next
}

// waited returns for how long ends have waited for a parent; 0: none does.
func (cs *crowds) waited(parent int64, now time.Duration) time.Duration {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[parent]; c != nil {
		return max(1, now-c.since)
	}
	return 0
}

// crowded returns the outcome of a child that does not begin; nil: it may.
func (x *execution) crowded() *step.Commit {
	parent := x.f.claim.Parent
	if parent == 0 || x.flights.outside.held.Load() < x.flights.outside.heldMost/2 {
		return nil
	}
	waited := x.commits.held.crowds.waited(parent, x.since())
	if waited == 0 {
		return nil
	}
	return &step.Commit{Kind: step.Again, Unbegun: true, Delay: min(max(waited, crowdLeast), crowdMost)}
}
