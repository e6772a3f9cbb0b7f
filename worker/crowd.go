package worker

import (
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

const (
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
type crowds struct {
	mu  sync.Mutex
	all map[int64]*crowd
}

// crowd is the ends that wait for one parent.
type crowd struct {
	number int
	since  time.Duration // by process.since
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

// leaves counts that an end does not wait any more.
func (cs *crowds) leaves(parent int64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[parent]
	if c.number--; c.number == 0 {
		delete(cs.all, parent)
	}
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
