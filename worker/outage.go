package worker

import (
	"sync"
	"time"
)

// outages is what this process knows of the times in which nobody's heartbeat was heard.
type outages struct {
	mu    sync.Mutex
	heard time.Duration // when the database last answered, by process.since
	over  time.Duration // when the last outage was over
}

// heard notes that the database has answered.
//
// An outage is a time without any answer, from which the leases of living processes may have run out:
// one and a half heartbeats or more, since a lease is three at least, and a beat is sent every one and
// a quarter at most. A lost connection is none: where sessions are ended every few seconds, the next
// statement takes another connection, and beats are heard all the while. Something is sent with every
// heartbeat, and a poll each second, so that without an outage answers are never so far apart. A
// process that was stopped itself takes that for an outage, which costs two heartbeats.
func (p *process) heard() {
	now := p.since()
	p.outages.mu.Lock()
	defer p.outages.mu.Unlock()
	if now-p.outages.heard >= p.config.Heartbeat*3/2 {
		p.outages.over = now
	}
	p.outages.heard = now
}

// unheard notes that no heartbeat was heard until now, though the database answers: it is read-only,
// or was.
func (p *process) unheard() {
	now := p.since()
	p.outages.mu.Lock()
	defer p.outages.mu.Unlock()
	p.outages.over = now
}

// reached is how long ago the last outage was over.
func (p *process) reached() time.Duration {
	p.outages.mu.Lock()
	defer p.outages.mu.Unlock()
	return p.since() - p.outages.over
}
