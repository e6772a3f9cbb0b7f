package worker

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// claimMost bounds one claim. Beyond some hundred rows a larger batch saves nothing, and only
	// holds its locks longer.
	claimMost = 500
	// windowMost is the number of rows at which a claim looks when the rows in front cannot run.
	windowMost = 1000
	// A claim resumes where the last one stopped. One starts at the front every frontTimes × the
	// server time of the last front claim, at most every frontLate: the front is slow, since the
	// entries of all rows that were claimed gather there until VACUUM. If a transaction that somebody
	// left open keeps them from being marked as dead, stepping over them may take seconds.
	frontTimes = 10
	frontLate  = 5 * time.Second
)

// claimReply is the answer to the claim under way.
type claimReply struct {
	store.Claimed
	after  store.Place
	strays bool // it was a claim of strays
	wanted int
	sent   time.Duration
	took   time.Duration
	err    error
}

// claim sends a claim of n rows.
func (s *scheduler) claim(n int) {
	p := store.ClaimParams{Queue: s.name, Worker: s.id, Machines: s.machineIDs, Limit: n, Window: n, Lease: s.config.Lease,
		Awaited: s.config.Env.Limits.AwaitedBytes, MoveBlocked: s.blocked}
	p.Gated, p.Seats = s.gates.concern(s.name)
	p.Lines = s.turn
	if s.wide {
		p.Window = windowMost
	}
	if s.strayed = !s.strayed && s.strays.Swap(false); s.strayed {
		s.send(&p, func(ctx context.Context) (store.Claimed, error) { return s.db.ClaimStrays(ctx, p, s.stepKeys()) })
		return
	}
	if !s.before.Swap(false) && s.since() < s.front {
		p.After = s.last
	}
	s.send(&p, func(ctx context.Context) (store.Claimed, error) { return s.db.Claim(ctx, p) })
}

// send sends a claim. Its answer goes to the loop.
func (s *scheduler) send(p *store.ClaimParams, claim func(context.Context) (store.Claimed, error)) {
	n, after, strays := p.Limit, p.After, s.strayed
	doubt := s.doubt
	delay := pace.Backoff(s.failures, 50*time.Millisecond, 5*time.Second)
	// This claim may miss a row that becomes runnable from here on. Such a row sets ready again.
	s.ready, s.picking, s.ended = false, true, 0
	s.lefts = s.gates.lefts.Load()
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
		got, err := claim(ctx)
		if s.batches {
			for _, c := range got.Claims {
				s.assign(c)
			}
		}
		s.results <- claimReply{Claimed: got, after: after, strays: strays, wanted: n, sent: sent, took: s.since() - sent, err: err}
	}()
}

// take processes the answer to a claim, and decides when to claim again.
func (s *scheduler) take(r claimReply, due *time.Timer) {
	s.picking = false
	s.promotions.add(r.Unsettled)
	tell(s.base, s.process, s.hooks.pick, PickEvent{Queue: s.name, Wanted: r.wanted, Got: len(r.Claims), Took: r.took, Err: r.err})
	if r.err != nil {
		s.failed(r)
		return
	}
	s.failures, s.narrow, s.doubt = 0, 0, false
	s.claimed(r.Claims)
	s.admit(s.withoutStrays(s.flights.launch(s.queue, r.Claims, r.sent)))
	s.reportAside(s.name, r.Aside)
	s.reportRefused("claim an instance", r.Refused)
	short := len(r.Claims) < r.wanted
	if r.strays { // the place where claims resume is that of the others, which come next
		s.ready = true
		s.strays.CompareAndSwap(false, !short)
		return
	}
	s.blocked = short && r.Blocked+len(r.Unsettled) > 0
	s.wide = short && (r.Moved > 0 || s.blocked)
	s.advance(&r, short)
	s.turn = store.Turn{First: !s.turn.First, After: r.Turn.After, Used: r.Turn.Used}
	if r.Left > 0 {
		s.before.Store(true) // they may be before the place where claims resume
	}
	crowded := short && (r.Crowded || s.gates.scarce(s.name, &r.Claimed))
	s.crowded.Store(crowded)
	left := crowded && s.gates.lefts.Load() != s.lefts
	again := claimAgain(&r.Claimed)
	switch {
	case !short, left, s.wide, len(r.Refused) > 0, r.More && len(r.Claims) > 0:
		s.ready = true // a full claim, or one that moved or set apart rows, or will move some: there may be more
	case r.after != store.Place{} && (again < 0 || s.front-s.since() < again):
		due.Reset(s.front - s.since()) // then look at the rows before it
	case again >= 0:
		due.Reset(again)
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

// advance notes where the next claims resume. While claims move rows that cannot run out of the
// front, they start at the front.
func (s *scheduler) advance(r *claimReply, short bool) {
	if (r.after == store.Place{}) && !s.wide {
		s.front = s.since() + min(frontTimes*r.Took, frontLate) // without the time that the network takes
	}
	if len(r.Claims) > 0 && (!short || r.Last.Compare(s.last) > 0) {
		s.last = r.Last // a claim that was not full has looked at all rows that were due
	}
}

// failed decides what follows a failed claim. Two claims that collided on a partition key try again
// at once, with fewer rows: they can take one after the other what each could take alone (T59).
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
