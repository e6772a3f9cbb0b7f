package work

import (
	"sync"
	"time"
)

// outages records when no heartbeats reached the database, as far as this process knows.
type outages struct {
	mu    sync.Mutex
	heard time.Duration // when the database last answered, by process.since
	over  time.Duration // when the last outage ended
}

// heard notes that the database has answered.
//
// An outage is a time without any answer in which the leases of living processes may have expired:
// one and a half heartbeats or more, since a lease is three at least, and the interval between
// beats is one and a quarter at most. A lost connection is no outage: if sessions end every few
// seconds, the next statement takes another connection, and beats arrive all the while. The process
// sends a statement with every heartbeat, and a poll each second, so that answers are never so far
// apart without an outage. A process that was stopped itself takes that for an outage, which costs
// two heartbeats.
func (p *process) heard() {
	now := p.since()
	p.outages.mu.Lock()
	defer p.outages.mu.Unlock()
	if now-p.outages.heard >= p.config.Heartbeat*3/2 {
		p.outages.over = now
	}
	p.outages.heard = now
}

// unheard notes that no heartbeat took effect until now although the database answers, since it is
// or was read-only.
func (p *process) unheard() {
	now := p.since()
	p.outages.mu.Lock()
	defer p.outages.mu.Unlock()
	p.outages.over = now
}

// reached returns how long ago the last outage ended.
func (p *process) reached() time.Duration {
	p.outages.mu.Lock()
	defer p.outages.mu.Unlock()
	return p.since() - p.outages.over
}
