package work

import "slices"

// lone holds outcomes that are committed alone, each in a separate transaction, with a limited
// number of turns at a time. A turn is for one try only, so that an outcome that is held up for
// hours does not keep others from theirs. The outcome with the fewest tries goes first, so that
// held-up ones do not delay one that was not tried yet. The committer's mu guards it.
type lone struct {
	most  int // number of turns
	busy  int // turns in use
	queue []*pending
}

// take takes the next outcome of the queue, or returns nil if there is none.
func (l *lone) take() *pending {
	next := -1
	for i, p := range l.queue {
		if next < 0 || p.tries() < l.queue[next].tries() {
			next = i
		}
	}
	if next < 0 {
		return nil
	}
	p := l.queue[next]
	l.queue = slices.Delete(l.queue, next, next+1)
	return p
}

// start uses the turns that are free. The caller holds mu.
func (c *committer) start(l *lone) {
	for l.busy < l.most && len(l.queue) > 0 {
		l.busy++
		p := l.take()
		c.running.Go(func() { c.goOn(l, p) })
	}
}

// goOn commits one outcome after another in one turn.
func (c *committer) goOn(l *lone, p *pending) {
	for p != nil {
		c.commitBatch([]*pending{p}, alone)
		c.mu.Lock()
		p = nil
		if !c.closed {
			p = l.take()
		}
		if p == nil {
			l.busy--
		}
		c.mu.Unlock()
	}
}
