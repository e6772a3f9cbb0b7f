package work

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gendurable/gendurable/internal/store"
)

const (
	commitMost  = 500      // most outcomes of one batch
	commitBytes = 16 << 20 // most bytes of one batch, so that neither side has to hold more at a time
	bulkMost    = 100      // number of children from which an outcome goes alone, so that it does not hold up others
	bulkBytes   = 4 << 20  // bytes from which it does
	commitLanes = 2
)

// committer makes outcomes durable, many in one transaction. A lane takes the outcomes that wait,
// commits them, and then takes those that have gathered meanwhile. So batches grow under load by
// themselves, and a lone step commits at once.
//
// Outcomes of one parent's children always take the same lane, since each of two lanes would find
// the parent locked by the other.
//
// An outcome that must not share a transaction goes alone. One that a lock holds up is put aside,
// and comes back later: see held.
type committer struct {
	*process
	flights    *flights
	promotions *promotions
	held       *held

	worked [store.NeedsMost]atomic.Uint32 // numbers of committed outcomes, by the statements that they need

	running sync.WaitGroup
	quit    chan struct{} // ends the lanes
	lanes   [commitLanes]*lane

	mu     sync.Mutex
	any    []*pending // outcomes for whichever lane is free
	closed bool

	bulk  lone // large outcomes: one at a time, so that few bytes are on their way
	keyed lone // outcomes with children whose correlation keys others may be inserting
	stuck lone // outcomes that have waited in vain for a lock other than on their rows
	ill   lone // outcomes whose commit fails for another reason than others' commits
}

// lane holds the outcomes that only this lane may take. The committer's mu guards it.
type lane struct {
	own  []*pending
	wake chan struct{}
}

func newLane() *lane { return &lane{wake: make(chan struct{}, 1)} }

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pending is an outcome on its way to the database.
type pending struct {
	flight    *flight
	entry     store.Entry
	bytes     int        // of the entry
	marks     []string   // the marks of every attempt to commit it
	doubt     bool       // one of them got no answer
	probe     bool       // do not commit it, but find out whether its attempt took effect
	held      *hindrance // nil: nothing has kept it from being committed so far
	suspicion suspicion
	to        recipient
}

// recipient gets the answer about an outcome.
type recipient interface {
	// answered reports, once, the fate of the outcome.
	answered(r commitReply)
	// leave is called before answered, perhaps repeatedly. The outcome takes long through no fault in
	// it, so its slot may go to others.
	leave()
}

func (p *pending) terminal() bool {
	return p.entry.Commit.Kind.Terminal()
}

// commitReply is the fate of an outcome. If all fields are zero, the outcome is durable.
type commitReply struct {
	stale     bool
	refused   error // Postgres refused its data: nothing was written
	abandoned bool  // the worker stopped first: the lease decides
	undone    bool  // for a probed outcome: nothing was written, nor will be
	turned    bool  // it is durable, but the instance has not ended: see step.Unless
}

func newCommitter(p *process, flights *flights, promotions *promotions) *committer {
	c := &committer{process: p, flights: flights, promotions: promotions, quit: make(chan struct{}),
		bulk: lone{most: 1}, keyed: lone{most: 2}, stuck: lone{most: 2}, ill: lone{most: 2}}
	c.held = newHeld(c)
	for i := range c.lanes {
		c.lanes[i] = newLane()
	}
	return c
}

// commit takes an outcome, and answers it once, when it is durable or cannot be. It does not block.
func (c *committer) commit(p *pending) { c.send(p) }

// send puts an outcome into the queue from which it is committed.
func (c *committer) send(p *pending) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.answer(p, commitReply{abandoned: true})
		return
	}
	defer c.mu.Unlock()
	if l := c.loneOf(p); l != nil {
		l.queue = append(l.queue, p)
		c.start(l)
		return
	}
	if parent := p.entry.Claim.Parent; parent != 0 && p.terminal() {
		l := c.lanes[parent%commitLanes]
		l.own = append(l.own, p)
		l.signal()
		return
	}
	if c.any = append(c.any, p); len(c.any) == 1 {
		for _, l := range c.lanes {
			l.signal()
		}
	}
}

// loneOf returns the lone from which an outcome is committed alone, or nil if it may share a batch.
func (c *committer) loneOf(p *pending) *lone {
	switch {
	case p.held != nil && p.held.by == byLock:
		return &c.stuck
	case p.held != nil && p.held.by == byItself:
		return &c.ill
	case p.entry.Alone():
		return &c.keyed
	case len(p.entry.Commit.Spawn) > bulkMost, p.bytes > bulkBytes:
		return &c.bulk
	}
	return nil
}

// answer reports the fate of an outcome to its recipient.
func (c *committer) answer(p *pending, r commitReply) {
	if p.held != nil && p.held.parent != 0 {
		parent := p.held.parent
		p.held.parent = 0
		durable := !r.stale && r.refused == nil && !r.abandoned && !r.undone
		if c.held.crowds.leaves(parent, durable, c.since()) {
			c.held.follow(parent)
		}
	}
	p.to.answered(r)
}

// run runs the lanes until stop.
func (c *committer) run() {
	for _, l := range c.lanes {
		c.running.Go(func() { c.serve(l) })
	}
	c.running.Go(c.held.run)
}

// stop ends the lanes, and abandons the outcomes that are still on their way. The caller has waited
// for them as long as it wanted to, and has cancelled the context of the statements.
func (c *committer) stop() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.quit)
	c.running.Wait()
	left := slices.Concat(c.any, c.bulk.queue, c.keyed.queue, c.stuck.queue, c.ill.queue, c.held.close())
	for _, l := range c.lanes {
		left = append(left, l.own...)
	}
	c.abandon(left)
}

func (c *committer) abandon(batch []*pending) {
	for _, p := range batch {
		c.answer(p, commitReply{abandoned: true})
	}
}

// serve commits the outcomes of a lane.
func (c *committer) serve(l *lane) {
	for {
		if batch := c.take(l); len(batch) > 0 {
			c.commitBatch(batch, shared)
			continue
		}
		select {
		case <-c.quit:
			return
		case <-l.wake:
		}
	}
}

// take takes a batch for a lane: from its own outcomes, and from those that any lane may take.
func (c *committer) take(l *lane) (batch []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	var more []*pending
	bytes := commitBytes
	l.own, batch = front(l.own, commitMost, &bytes)
	c.any, more = front(c.any, commitMost-len(batch), &bytes)
	return append(batch, more...)
}

// front takes up to n outcomes from the front of a queue, as far as bytes allows, and subtracts
// their bytes from it.
func front(queue []*pending, n int, bytes *int) (rest, taken []*pending) {
	n = min(n, len(queue))
	for i, p := range queue[:n] {
		if *bytes -= p.bytes; *bytes < 0 {
			n = i
			break
		}
	}
	if n == len(queue) {
		return nil, queue
	}
	return queue[n:], slices.Clone(queue[:n])
}
