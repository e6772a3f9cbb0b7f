package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gendurable/gendurable/internal/store"
)

const (
	commitMost  = 500 // outcomes of one batch
	bulkMost    = 100 // children from which an outcome takes the bulk lane, so that it does not hold up the others
	slowAtOnce  = 2   // transactions of the slow lane at a time: each may wait for a stranger's lock
	commitLanes = 2
)

// committer makes outcomes durable, many in one transaction with others. A lane takes whatever
// waits, commits it, and takes what gathered meanwhile. So batches grow under load by themselves,
// and a lone step commits at once.
//
// Outcomes of one parent's children always take the same lane: two lanes would find the parent
// locked by each other.
type committer struct {
	*process
	flights    *flights
	promotions *promotions

	slots chan struct{} // of the slow lane

	worked [store.NeedsMost]atomic.Uint32 // outcomes that were committed, by the statements they need

	running sync.WaitGroup
	quit    chan struct{} // ends the lanes
	lanes   [commitLanes]*lane
	bulk    *lane

	mu     sync.Mutex
	any    []*pending // for whichever lane is free
	closed bool
}

// lane is what only one of them may take, under the committer's mu.
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

// pending is an outcome on its way.
type pending struct {
	flight *flight
	entry  store.Entry
	marks  []string // of every attempt to commit it
	to     interface{ answered(r commitReply) }
}

func (p *pending) terminal() bool {
	return p.entry.Commit.Kind.Terminal()
}

// commitReply is what became of an outcome: durable, if all are zero.
type commitReply struct {
	stale     bool
	refused   error // by Postgres, for its data: nothing was written
	abandoned bool  // the worker stopped first: the lease decides
}

// answerOnce keeps an answer for whoever waits for it.
type answerOnce chan commitReply

func (a answerOnce) answered(r commitReply) { a <- r }

func newCommitter(p *process, flights *flights, promotions *promotions) *committer {
	c := &committer{process: p, flights: flights, promotions: promotions, bulk: newLane(), slots: make(chan struct{}, slowAtOnce), quit: make(chan struct{})}
	for i := range c.lanes {
		c.lanes[i] = newLane()
	}
	return c
}

// commit takes an outcome, and answers it once, when it is durable or cannot be. It does not wait.
func (c *committer) commit(p *pending) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		p.to.answered(commitReply{abandoned: true})
		return
	}
	defer c.mu.Unlock()
	l := (*lane)(nil)
	switch parent := p.entry.Claim.Parent; {
	case p.entry.Slow(), len(p.entry.Commit.Spawn) > bulkMost:
		l = c.bulk
	case parent != 0 && p.terminal():
		l = c.lanes[parent%commitLanes]
	}
	if l != nil {
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

// start runs the lanes until stop.
func (c *committer) start() {
	for _, l := range c.lanes {
		c.running.Go(func() { c.run(l) })
	}
	c.running.Go(func() {
		for {
			select {
			case <-c.quit:
				return
			case <-c.bulk.wake:
			}
			for batch := c.takeBulk(); len(batch) > 0; batch = c.takeBulk() {
				if batch[0].entry.Slow() {
					c.slowly(batch)
				} else {
					c.commitBatch(batch, false)
				}
			}
		}
	})
}

// stop ends the lanes. What is still on its way is abandoned: the caller has waited for it as long
// as it wanted to, and has cancelled the context of what is being sent.
func (c *committer) stop() {
	close(c.quit)
	c.running.Wait()
	c.mu.Lock()
	c.closed = true
	left := slices.Concat(c.any, c.bulk.own)
	for _, l := range c.lanes {
		left = append(left, l.own...)
	}
	c.mu.Unlock()
	abandon(left)
}

func abandon(batch []*pending) {
	for _, p := range batch {
		p.to.answered(commitReply{abandoned: true})
	}
}

// run commits what comes to a lane.
func (c *committer) run(l *lane) {
	for {
		if batch := c.take(l); len(batch) > 0 {
			c.commitBatch(batch, false)
			continue
		}
		select {
		case <-c.quit:
			return
		case <-l.wake:
		}
	}
}

// take takes a batch for a lane: its own, and what any lane may take.
func (c *committer) take(l *lane) (batch []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var more []*pending
	l.own, batch = front(l.own, commitMost)
	c.any, more = front(c.any, commitMost-len(batch))
	return append(batch, more...)
}

func (c *committer) takeBulk() (batch []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bulk.own, batch = front(c.bulk.own, 1)
	return batch
}

// front takes up to n from the front of a queue.
func front(queue []*pending, n int) (rest, taken []*pending) {
	if n >= len(queue) {
		return nil, queue
	}
	return queue[n:], slices.Clone(queue[:n])
}

// slowly hands a batch to the slow lane, where transactions wait for rows that others hold.
func (c *committer) slowly(batch []*pending) {
	c.running.Go(func() { c.commitBatch(batch, true) })
}

// apart takes outcomes out of the way of the others, into the slow lane. Siblings go together: they
// wait for one lock. Others each alone, so that a stranger's lock delays no more than its own row.
func (c *committer) apart(batch []*pending) {
	families := map[int64][]*pending{}
	for _, p := range batch {
		if parent := p.entry.Claim.Parent; parent != 0 && p.terminal() {
			families[parent] = append(families[parent], p)
		} else {
			c.slowly([]*pending{p})
		}
	}
	for _, family := range families {
		c.slowly(family)
	}
}
