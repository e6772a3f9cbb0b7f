package worker

import "slices"

// lone are outcomes that are committed alone, each in a transaction of its own, and so many at a
// time. A turn is for one try only: what is held for hours must not keep others from theirs. Who
// has tried least often goes first, so that what is held keeps nobody waiting who has not tried
// yet. It is under the committer's mu.
type lone struct {
	most  int // turns
	busy  int // of them
	queue []*pending
}

// take takes the next of the queue; nil if there is none.
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

// start uses the turns that are free. mu is held.
func (c *committer) start(l *lone) {
	for l.busy < l.most && len(l.queue) > 0 {
		l.busy++
		p := l.take()
		c.running.Go(func() { c.goOn(l, p) })
	}
}

// goOn commits one outcome after the other in one turn.
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
