package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	commitMost  = 500 // outcomes of one batch
	bulkMost    = 100 // children from which an outcome takes the bulk lane, so that it does not hold up the others
	slowAtOnce  = 2   // transactions of the slow lane at a time: each may wait for a stranger's lock
	commitLanes = 2
	stubborn    = 3 // tries after which trouble that passes is taken for trouble of one entry, that may not
)

// committer makes outcomes durable, many in one transaction with others. A lane takes whatever waits, commits it, and takes what gathered
// meanwhile. So batches grow under load by themselves, and a lone step commits at once.
//
// Outcomes of one parent's children always take the same lane: two lanes would find the parent locked by each other.
type committer struct {
	w     *Worker
	slots chan struct{} // of the slow lane

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
	k := p.entry.Commit.Kind
	return k == step.Done || k == step.Stop
}

// commitReply is what became of an outcome: durable, if all are zero.
type commitReply struct {
	stale     bool
	refused   error // by Postgres, for its data: nothing was written
	abandoned bool  // the worker stopped first: the lease decides
	again     bool  // of a step's own transaction: nothing was written, and the visit has to decide anew
}

// answerOnce keeps an answer for whoever waits for it.
type answerOnce chan commitReply

func (a answerOnce) answered(r commitReply) { a <- r }

func newCommitter(w *Worker) *committer {
	c := &committer{w: w, bulk: newLane(), slots: make(chan struct{}, slowAtOnce), quit: make(chan struct{})}
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
					c.process(batch, false)
				}
			}
		}
	})
}

// stop ends the lanes. What is still on its way is abandoned: the caller has waited for it as long as it wanted to, and has cancelled
// the context of what is being sent.
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
			c.process(batch, false)
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
	c.running.Go(func() { c.process(batch, true) })
}

// apart takes outcomes out of the way of the others, into the slow lane. Siblings go together: they wait for one lock. Others each alone,
// so that a stranger's lock delays no more than its own row.
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

// process commits a batch until every outcome in it is decided. Transient trouble is retried here, with the leases beaten meanwhile: it
// never reaches a step (T30). A data error bisects the batch down to the culprit; the others commit (T65).
//
// Two outcomes of one instance may meet here: of a claim whose lease was lost while its step went on, and of its successor in this same
// process. They must not share a batch: the riders go by the batch's mark, so that the stale one would consume, spawn and drop along with
// the other.
func (c *committer) process(batch []*pending, slow bool) {
	batch, repeated := distinct(batch)
	if len(repeated) > 0 {
		defer c.process(repeated, slow)
	}
	for n := 0; len(batch) > 0; n++ {
		if !sleep(c.w.base, backoff(n, 10*time.Millisecond, 5*time.Second)) {
			abandon(batch) // stopped for good: the lease decides
			return
		}
		if n > 0 || slow {
			if batch = c.unvoided(batch); len(batch) == 0 {
				return
			}
		}
		mark := uuid.NewString()
		entries := make([]store.Entry, len(batch))
		for i, p := range batch {
			p.marks = append(p.marks, mark)
			entries[i] = p.entry
		}
		began := c.w.since()
		done, err := c.send(mark, entries, slow)
		switch fault := store.Classify(err); {
		case err == nil:
			c.applied(&done, c.w.since()-began)
			batch = c.settle(batch, done.Applied, slow)
		case store.Unknown(err):
			c.w.trouble("commit", err)
			batch = c.resolve(batch, true)
		case fault == store.FaultData && len(batch) > 1:
			half := len(batch) / 2
			c.process(batch[:half], slow)
			batch, n = batch[half:], -1
		case fault == store.FaultData:
			batch[0].to.answered(commitReply{refused: err})
			return
		default:
			c.w.trouble("commit", err)
			if slow {
				c.w.reportHolder(batch[0].entry.Claim, err)
			}
			switch {
			case slow && store.IsLockTimeout(err):
				n = -1 // it has waited: back into the row's queue, before a reaper that does not wait
			case n+1 < stubborn || !store.MayNeverPass(err):
			case !slow:
				c.apart(batch)
				return
			case len(batch) > 1:
				for _, p := range batch {
					c.slowly([]*pending{p})
				}
				return
			}
		}
	}
}

// send commits a batch, once. In the slow lane a turn is for one try only: what stays held for hours must not keep others from theirs.
func (c *committer) send(mark string, entries []store.Entry, slow bool) (store.Committed, error) {
	if slow {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-c.w.base.Done():
			return store.Committed{}, c.w.base.Err()
		}
	}
	ctx, cancel := context.WithTimeout(c.w.base, statementTimeout)
	defer cancel()
	return c.w.db.Commit(ctx, c.w.id, mark, entries, slow)
}

// unvoided drops the outcomes of claims that a newer one of this process has voided while they were on their way.
func (c *committer) unvoided(batch []*pending) []*pending {
	return slices.DeleteFunc(slices.Clone(batch), func(p *pending) bool {
		if c.w.flights.current(p.flight) {
			return false
		}
		p.to.answered(commitReply{stale: true})
		return true
	})
}

// distinct splits off the outcomes of instances that have one before them in the batch.
func distinct(batch []*pending) (first, repeated []*pending) {
	if len(batch) < 2 {
		return batch, nil
	}
	seen := make(map[int64]bool, len(batch))
	for i, p := range batch {
		id := p.entry.Claim.ID
		switch {
		case !seen[id] && repeated != nil:
			first = append(first, p)
		case seen[id] && repeated == nil:
			first, repeated = slices.Clone(batch[:i]), []*pending{p}
		case seen[id]:
			repeated = append(repeated, p)
		}
		seen[id] = true
	}
	if repeated == nil {
		first = batch
	}
	return first, repeated
}

func (c *committer) applied(done *store.Committed, took time.Duration) {
	c.w.last.commit.now(c.w)
	c.w.Nudge(done.Queues...)
	for queue, in := range done.Soon {
		if s := c.w.queues[queue]; s != nil {
			s.expect(in)
		}
	}
	c.w.promotions.add(done.Missed)
	for _, tell := range c.w.hooks.commit {
		c.w.survive(func() { tell(c.w.base, len(done.Applied), took) })
	}
}

// settle answers the outcomes that were applied. The others were stale, or left out because someone held their row or their parent's:
// those go to the slow lane, unless this is it; then they are returned, to be tried again.
func (c *committer) settle(batch []*pending, applied map[int64]bool, slow bool) (again []*pending) {
	var ended []int64
	var rest []*pending
	for _, p := range batch {
		if !applied[p.entry.Claim.ID] {
			rest = append(rest, p)
			continue
		}
		if p.terminal() {
			ended = append(ended, p.entry.Claim.ID)
		}
		p.to.answered(commitReply{})
	}
	c.w.ended(ended)
	if len(rest) == 0 {
		return nil
	}
	current := c.resolve(rest, false)
	if slow {
		return current
	}
	c.apart(current)
	return nil
}

// resolve asks the rows themselves what became of outcomes, until it gets an answer, and answers those that are decided. It returns
// those that were not applied and may be committed again. settle: a commit of theirs is unknown.
func (c *committer) resolve(batch []*pending, settle bool) (current []*pending) {
	var marks []string
	entries := make([]store.Entry, len(batch))
	for i, p := range batch {
		marks, entries[i] = append(marks, p.marks...), p.entry
	}
	for n := 0; sleep(c.w.base, backoff(n, 50*time.Millisecond, 5*time.Second)); n++ {
		ctx, cancel := context.WithTimeout(c.w.base, statementTimeout)
		verdicts, err := c.w.db.Resolve(ctx, c.w.id, marks, entries, settle)
		cancel()
		if err != nil {
			c.w.trouble("resolve a commit", err)
			continue
		}
		var ended []int64
		for _, p := range batch {
			switch verdicts[p.entry.Claim.ID] {
			case store.Mine:
				if p.terminal() {
					ended = append(ended, p.entry.Claim.ID)
				}
				p.to.answered(commitReply{})
			case store.Current:
				current = append(current, p)
			case store.Stale:
				if settle {
					c.w.log.Warn("a commit whose answer was lost cannot be told from a stale one any more",
						slog.Int64("instance", p.entry.Claim.ID), slog.Int64("visit", p.entry.Claim.Visit))
				}
				p.to.answered(commitReply{stale: true})
			}
		}
		c.w.ended(ended)
		return current
	}
	abandon(batch)
	return nil
}
