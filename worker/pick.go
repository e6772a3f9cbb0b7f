package worker

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// claimMost bounds one claim: beyond some hundred rows a larger batch saves nothing and only
	// holds its locks longer.
	claimMost = 500
	// windowMost is how far a claim looks when the rows in front of it cannot run.
	windowMost = 1000
	// Claims go on behind the last one, and from the front again after this many times what that
	// took the server, at the latest after frontLate: at the front the entries of all rows gather
	// that were claimed since the last vacuum, and where a transaction that somebody has left open
	// keeps them from being marked as dead, to step over them may take seconds.
	frontTimes = 10
	frontLate  = 5 * time.Second
)

// claimReply is the answer of the claim under way.
type claimReply struct {
	store.Claimed
	after  store.Place
	wanted int
	sent   time.Duration
	took   time.Duration
	err    error
}

// claim sends a claim of n rows. Its answer comes to the loop.
func (s *scheduler) claim(n int) {
	p := store.ClaimParams{Queue: s.name, Worker: s.id, Machines: s.machineIDs, Limit: n, Window: n, Lease: s.config.Lease,
		MoveBlocked: s.blocked}
	if s.wide {
		p.Window = windowMost
	}
	if s.since() < s.front {
		p.After = s.last
	}
	doubt := s.doubt
	delay := pace.Backoff(s.failures, 50*time.Millisecond, 5*time.Second)
	// What becomes runnable from here on may be missed by this claim: it sets ready again.
	s.ready, s.picking, s.ended = false, true, 0
	go func() {
		if !s.pause(delay) {
			s.results <- claimReply{wanted: n, err: fsm.ErrDraining}
			return
		}
		sent := s.since()
		ctx, cancel := context.WithTimeout(s.claiming, statementTimeout)
		defer cancel()
		if doubt {
			if err := s.claims.releaseStrays(ctx, s.name); err != nil {
				s.results <- claimReply{wanted: n, err: err}
				return
			}
		}
		got, err := s.db.Claim(ctx, p)
		s.results <- claimReply{Claimed: got, after: p.After, wanted: n, sent: sent, took: s.since() - sent, err: err}
	}()
}

// take takes in what a claim brought, and decides when to claim again.
func (s *scheduler) take(r claimReply, due *time.Timer) {
	s.picking = false
	s.promotions.add(r.Unsettled)
	tell(s.base, s.process, s.hooks.pick, PickEvent{Queue: s.name, Wanted: r.wanted, Got: len(r.Claims), Took: r.took, Err: r.err})
	if r.err != nil {
		s.failed(r)
		return
	}
	s.failures, s.narrow, s.doubt = 0, 0, false
	s.admit(s.flights.launch(s.queue, r.Claims, r.sent))
	s.reportAside(s.name, r.Aside)
	short := len(r.Claims) < r.wanted
	s.blocked = short && r.Blocked+len(r.Unsettled) > 0
	s.wide = short && (r.Moved > 0 || s.blocked)
	s.advance(&r, short)
	switch {
	case !short, s.wide:
		s.ready = true // a full claim, or one that cleared the way, or is to: there may be more
	case r.after != store.Place{}:
		due.Reset(s.front - s.since()) // what is before it?
	case r.NextDue >= 0:
		due.Reset(r.NextDue)
	}
	switch {
	case s.conf.Buffer > 0:
		s.ahead = s.conf.Buffer
	case short:
		s.ahead /= 2
	default:
		s.ahead = min(2*s.ended, 2*s.conf.Concurrency, claimMost)
	}
	tell(s.base, s.process, s.hooks.saturation,
		SaturationEvent{Queue: s.name, Running: s.running, Buffered: len(s.buffer), Slots: s.conf.Concurrency})
}

// advance takes down from where the next claims go on. As long as rows that cannot run are being
// cleared out of the front, that is the front.
func (s *scheduler) advance(r *claimReply, short bool) {
	if (r.after == store.Place{}) && !s.wide {
		s.front = s.since() + min(frontTimes*r.Took, frontLate) // its way there and back does not count
	}
	if len(r.Claims) > 0 && (!short || r.Last.Compare(s.last) > 0) {
		s.last = r.Last // a claim that was not full has looked at all that was due
	}
}

// failed decides what follows a claim that failed. Two picks that met on a partition key try again
// at once, with fewer rows: what each could do alone they can do one after the other (T59).
func (s *scheduler) failed(r claimReply) {
	s.ready = true
	if store.IsUniqueViolation(r.err) {
		if s.narrow = max(1, r.wanted/2); r.wanted > 1 {
			return
		}
	}
	s.failures++
	s.doubt = s.doubt || store.Unknown(r.err)
	s.trouble("claim", r.err)
}
