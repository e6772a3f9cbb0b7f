package work

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

const (
	// claimMost bounds one claim. Beyond some hundred rows a larger batch saves nothing, and only
	// holds its locks longer.
	claimMost = 500
	// aheadEach bounds how many rows a queue claims beyond its free slots, for each step that ended
	// while the last claim was under way, and for each slot. A claim has a fixed price, as high as the
	// price of some dozen rows, so a process with few slots claims for the time of several steps.
	aheadEach = 4
	// windowMost is the number of rows at which a claim looks when the rows in front cannot run.
	windowMost = 1000
	// A claim resumes where the last one stopped. One starts at the front every frontTimes × the
	// server time of the last front claim, at most every frontLate: the front is slow, since the
	// entries of all rows that were claimed gather there until VACUUM. If a transaction that was left
	// open keeps them from being marked as dead, stepping over them may take seconds.
	frontTimes = 10
	frontLate  = 5 * time.Second
	// A claim waits for others of its queue for patienceTimes × the server time of the last claim: so
	// up to that many processes take turns. A claim from the front that is about to take longer than
	// patienceMost takes no turn, and others do not wait for it.
	patienceTimes = 16
	patienceLeast = 20 * time.Millisecond
	patienceMost  = 500 * time.Millisecond
	// keyedFor is how long claims of a queue heed partition keys after one has seen a row with a key.
	keyedFor = time.Minute
)

// claimReply is the answer to a claim. A claim that has taken all that it wanted answers twice:
// first what is sure, then with its rows.
type claimReply struct {
	store.Claimed
	sure    *store.Sure // the first of two answers, which has nothing else but after, wanted and sent
	overlap bool        // the second of two answers
	after   store.Place
	strays  bool // it was a claim of strays
	plain   bool // it was to claim nothing where it met a partition key
	doubt   bool // what earlier claims without an answer may have taken was given back before it
	wanted  int
	sent    time.Duration
	took    time.Duration
	err     error
}

// claim sends a claim of n rows.
func (s *scheduler) claim(n int) {
	p := store.ClaimParams{Queue: s.name, Worker: s.id, Machines: s.machineIDs, Limit: n, Window: n, Lease: s.config.Lease,
		Awaited: s.config.Env.Limits.AwaitedBytes, MoveBlocked: s.blocked}
	p.Gated, p.Seats = s.gates.concern(s.name)
	p.Lines = s.turn
	p.Lines.Yields = s.yields.now(s.since())
	s.looked, s.told = s.jumps.tell(&p, s.since()), p.Jumps
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
	p.Plain = !p.Gated && s.since() >= s.keyed
	p.Patience = s.patience(&p)
	s.send(&p, func(ctx context.Context) (store.Claimed, error) { return s.db.Claim(ctx, p) })
}

// patience returns how long a claim waits for others of its queue, in other processes. Claims that
// take turns are faster, and cost less. The bounds limit the delay by another process whose claim
// is stuck.
func (s *scheduler) patience(p *store.ClaimParams) time.Duration {
	if (p.After == store.Place{}) && s.frontTook > patienceMost {
		return 0
	}
	if s.took == 0 {
		return patienceMost // it is the first one, and the others are as well, if a fleet starts
	}
	return min(max(patienceLeast, patienceTimes*s.took), patienceMost)
}

// overlaps reports whether the next claim may be sent while the rows of this one are being read,
// once it has been committed. The next one cannot take them: its snapshot has them as executing.
// Should one of them come back meanwhile and be claimed again, answers are taken in order, so the
// newer claim voids the older: see flights.add. For a batch step, the rows decide how many more are
// wanted. At gates the next claim would come when fewer places are free again, and bring less.
func (s *scheduler) overlaps(p *store.ClaimParams) bool {
	return !s.strayed && !s.batches && !s.unsure && !p.MoveBlocked && !p.Gated
}

// send sends a claim. Its answers go to the loop, after all answers of the claim before: so the
// loop meets claims in the order in which they were made. At most two are under way, of which the
// first has been committed. If rows are lost on their way, what no flight has is given back once no
// claim of the queue is under way: see demand. Before that, it could not be told from rows that
// another claim is about to bring.
func (s *scheduler) send(p *store.ClaimParams, claim func(context.Context) (store.Claimed, error)) {
	r := claimReply{after: p.After, strays: s.strayed, plain: p.Plain, doubt: s.unsure, wanted: p.Limit}
	delay := pace.Backoff(s.failures, 50*time.Millisecond, 5*time.Second)
	before, answered := s.answered, make(chan struct{})
	s.answered = answered
	if s.overlaps(p) {
		p.Committed = func(sure store.Sure) {
			if !sure.More || sure.Rows < r.wanted {
				return
			}
			<-before
			r.overlap = true
			s.results <- claimReply{sure: &sure, after: r.after, wanted: r.wanted, sent: r.sent}
		}
	}
	// This claim may miss a row that becomes runnable from here on. Such a row sets ready again.
	// Likewise it may miss the strays of a doubt that comes from here on.
	s.ready, s.unsure, s.picking, s.stepped, s.clear = false, false, true, 0, false
	s.lefts = s.gates.lefts.Load()
	s.asked++
	go func() {
		r := &r
		s.ask(r, delay, claim)
		<-before
		s.results <- *r
		close(answered)
	}()
}

// ask makes a claim.
func (s *scheduler) ask(r *claimReply, delay time.Duration, claim func(context.Context) (store.Claimed, error)) {
	if !s.pause(delay) {
		r.err = fsm.ErrDraining
		return
	}
	r.sent = s.since()
	ctx, cancel := context.WithTimeout(s.claiming, statementTimeout)
	defer cancel()
	if r.doubt {
		if r.err = s.claims.releaseStrays(ctx, s.name); r.err != nil {
			return
		}
	}
	r.Claimed, r.err = claim(ctx)
	s.upstream(ctx, r.Claims)
	if s.batches {
		for _, c := range r.Claims {
			s.assign(c)
		}
	}
	r.took = s.since() - r.sent
}

// proceed processes the first of two answers to a claim: that it took all that it wanted. The next
// one may be sent. It goes on behind this one's rows, which are committed, and on their way.
func (s *scheduler) proceed(r *claimReply) {
	s.picking, s.ready = false, true
	s.coming = r.sure.Rows
	s.narrow, s.blocked, s.wide = 0, false, false
	s.crowded.Store(false)
	s.resume(r.after, r.sure.Rows, r.sure.Last, r.sure.Took, false)
	s.stock(false)
}

// take processes the answer to a claim, and decides when to claim again. If the claim has answered
// before, that is decided.
func (s *scheduler) take(r claimReply, due *time.Timer) {
	if r.sure != nil {
		s.proceed(&r)
		return
	}
	s.asked--
	if r.overlap {
		s.coming = 0
	} else {
		s.picking = false
	}
	s.promotions.add(r.Unsettled)
	tell(s.base, s.process, s.hooks.pick, worker.PickEvent{Queue: s.name, Wanted: r.wanted, Got: len(r.Claims), Took: r.took, Err: r.err})
	if r.err != nil {
		s.failed(r)
		return
	}
	s.failures = 0
	s.picks.succeeded(s.process)
	if r.Keyed {
		s.keyed = s.since() + keyedFor
	}
	s.claimed(r.Claims)
	s.admit(s.withoutStrays(s.flights.launch(s.queue, r.Claims, r.sent)))
	s.reportAside(s.name, r.Aside)
	s.reportRefused("claim an instance", r.Refused)
	if !r.overlap {
		s.narrow = 0
		s.next(&r, due)
	}
	tell(s.base, s.process, s.hooks.saturation,
		worker.SaturationEvent{Queue: s.name, Running: s.running, Buffered: len(s.buffer), Slots: s.conf.Concurrency})
}

// next decides when to claim again after a claim that has answered once.
func (s *scheduler) next(r *claimReply, due *time.Timer) {
	short := len(r.Claims) < r.wanted
	if r.strays { // the place where claims resume is that of the others, which come next
		s.ready = true
		s.strays.CompareAndSwap(false, !short)
		return
	}
	if r.plain && r.Keyed && len(r.Claims) == 0 { // the next one does the work of this one
		s.ready = true
		s.before.CompareAndSwap(false, r.after == store.Place{})
		return
	}
	s.blocked = short && r.Blocked+len(r.Unsettled) > 0
	s.wide = short && (r.Moved > 0 || s.blocked)
	s.resume(r.after, len(r.Claims), r.Last, r.Took, short)
	s.turn = r.Turn
	if r.Left > 0 {
		s.before.Store(true) // they may be before the place where claims resume
	}
	s.clear = short && (r.after == store.Place{}) && r.Left == 0
	s.cutOff(r)
	learned := s.jumps.learn(&s.told, &r.Claimed, s.looked, s.since())
	if learned.look {
		wake(s.scout, true)
	}
	crowded := short && (r.Crowded || s.gates.scarce(s.name, &r.Claimed))
	s.crowded.Store(crowded)
	left := crowded && s.gates.lefts.Load() != s.lefts
	again := claimAgain(&r.Claimed)
	again = sooner(again, learned.next)
	if r.Yielded {
		again = sooner(again, s.yields.began(s.since()))
	}
	switch {
	case !short, left, s.wide, len(r.Refused) > 0, r.More && len(r.Claims) > 0, r.Turn.Blind, learned.more:
		s.ready = true // a full claim, or one that moved or set apart rows, will move some, or left some in line: there may be more
	case r.after != store.Place{} && (again < 0 || s.front-s.since() < again):
		due.Reset(s.front - s.since()) // then look at the rows before it
	case again >= 0:
		due.Reset(again)
	}
	s.stock(short)
}

// cutOff has the scouter look at the lines after a claim that has visited as many keys as it may.
func (s *scheduler) cutOff(r *claimReply) {
	if r.Cut {
		s.cut.Store(true)
		wake(s.scout, true)
	}
}

// stock decides how many to claim beyond the free slots.
func (s *scheduler) stock(short bool) {
	switch {
	case s.conf.Buffer > 0:
		s.ahead = s.conf.Buffer
	case short:
		s.ahead /= 2
	default:
		s.ahead = min(aheadEach*s.stepped, aheadEach*s.conf.Concurrency, claimMost)
	}
}

// resume notes where the next claims resume. While claims move rows that cannot run out of the
// front, they start at the front.
func (s *scheduler) resume(after store.Place, got int, last store.Place, took time.Duration, short bool) {
	if s.took = took; (after == store.Place{}) {
		s.frontTook = took
	}
	if (after == store.Place{}) && !s.wide {
		s.front = s.since() + min(frontTimes*took, frontLate) // without the time that the network takes
	}
	if got > 0 && (!short || last.Compare(s.last) > 0) {
		s.last = last // a claim that was not full has looked at all rows that were due
	}
}

// failed decides what follows a failed claim. Two claims that collided on a partition key try again
// at once, with fewer rows: they can take one after the other what each could take alone (T59).
func (s *scheduler) failed(r claimReply) {
	s.ready, s.unsure = true, s.unsure || r.doubt || store.Unknown(r.err)
	if store.IsUniqueViolation(r.err) {
		if s.narrow = max(1, r.wanted/2); r.wanted > 1 {
			return
		}
	}
	s.failures++
	if store.Unknown(r.err) { // it may have put rows in line
		s.lookSoon()
	}
	s.trouble("claim", r.err)
	s.picks.failed(s.process, r.err)
}
