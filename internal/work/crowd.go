package work

import (
	"context"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

const (
	// scouts is how many of a crowd find out whether their parent's row is free, and crowdPatience how
	// long it has been held by then: a row that siblings lock in turn is free again at once.
	scouts        = 8
	crowdPatience = 250 * time.Millisecond

	// A step that does not begin, since another transaction holds a row of its end, comes again after
	// a pause within these bounds: the pause grows with the wait of its siblings. All such steps come
	// one after the other, so that any number of them leaves most of the slots to others.
	crowdLeast = time.Second
	crowdMost  = 30 * time.Second
	turnEach   = 10 * time.Millisecond
	// looks is how often a child looks for its parent that was not found held before.
	looks = 3
	// seenMost bounds the held parents and streams that a process knows.
	seenMost = 10_000

	// A crowd lasts for crowdLasts after the last step that gave way. So none of many waits outside
	// because its turn comes when others have just left.
	crowdLasts = 5 * time.Second
	// A stream that waits outside comes to a slot again and again, to look. So a crowd of streams is
	// smaller by this factor.
	streamCosts = 10
)

// crowds knows the parents for whose rows ends of children wait: see held.
//
// A transaction may hold a parent of any number of children, or any number of parents. A child
// that ends waits for its parent outside of the slots, which have room for heldMost, and beyond
// that in its slot: then the queue would stop. So once crowdedFrom children wait, no other child
// of such a parent begins. A child of another parent begins once the worker has seen its parent
// free, and the nodes behind it. Else it goes back as by an Again, which changes no row but its
// own, and the queue goes on behind it. A step goes back likewise if the portion of its stream
// is held. The rest of the room is for rows that are locked while a step runs, one for each slot
// at a time. An outcome beyond it keeps its slot: the engine does not drop it, since its step
// has run.
//
// The ends that wait cost little more than one of them does. Once the row has been held for
// crowdPatience, only scouts of them try, one after the other since any of them may have its own
// row held, and with growing pauses. As soon as one has been committed, the others follow.
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
	c := x.f.claim
	if c.Parent == 0 || !x.crowd(1) {
		return nil
	}
	waited := x.commits.held.crowds.waited(c.Parent, x.since())
	if waited == 0 && x.free() {
		return nil
	}
	return x.givesWay(c.Parent, waited)
}

// crowd reports whether there is a crowd, if each of its members costs as much as so many children.
func (x *execution) crowd(costs int64) bool {
	o := &x.flights.outside
	return o.crowded(x.since(), max(1, o.crowdedFrom/costs))
}

// free reports whether the rows that the end of a child needs are free, as far as the database
// tells. The commit meets later locks. The worker looks again at a parent that it has not found
// held before, since siblings lock it for a moment.
func (x *execution) free() bool {
	o, c := &x.flights.outside, x.f.claim
	ctx, cancel := context.WithTimeout(x.f.ctx, statementTimeout)
	defer cancel()
	for n := 1; ; n++ {
		free, err := x.db.EndIsFree(ctx, c)
		switch {
		case err != nil:
			x.trouble("look whether a parent is free", err)
			return true
		case free:
			o.forget(c.Parent)
			return true
		case o.knows(c.Parent) || n == looks || !pace.Sleep(ctx, pace.Backoff(n, heldLeast, heldLate)):
			return false
		}
	}
}

// givesWay returns the outcome of a step that does not begin. Its siblings have waited for so long.
func (x *execution) givesWay(what int64, waited time.Duration) *step.Commit {
	pause := min(max(waited, crowdLeast), crowdMost)
	return &step.Commit{Kind: step.Again, Unbegun: true, Delay: x.flights.outside.turn(what, x.since(), pause)}
}
