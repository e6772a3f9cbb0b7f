package worker

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// claimMost bounds one claim: beyond some hundred rows a larger batch saves nothing and only holds its locks longer.
	claimMost = 500
	// windowMost is how far a claim looks when the rows in front of it cannot run.
	windowMost = 1000
	// Claims go on behind the last one, and from the front again after this many times what that took the server, at the latest after frontLate: at the
	// front the entries of all rows gather that were claimed since the last vacuum, and where a transaction that somebody has left open keeps
	// them from being marked as dead, to step over them may take seconds.
	frontTimes = 10
	frontLate  = 5 * time.Second
	// asideMost is how many claims beyond the slots may wait for keys that stalled processes hold. Each is one that others could make when
	// those processes are gone; but at the bound nothing is claimed any more.
	asideMost = 100
)

// scheduler claims work of one queue and feeds it to slots. Its loop owns every field above the line.
type scheduler struct {
	w    *Worker
	name string
	conf Queue

	running  int       // slots in use: a slot is free when its outcome is durable, not before
	buffer   []*flight // claimed, waiting for a slot; most urgent first
	parked   int       // claimed, waiting for their partition key's lock: outside the slots
	ready    bool      // there may be something to claim
	wide     bool      // the last claim met rows in front that cannot run: look further
	narrow   int       // after a collision on a partition key, claim at most so many; 0: as many as wanted
	claiming bool
	failures int           // claims in a row that failed
	doubt    bool          // one of them got no answer, and may have taken effect
	ended    int           // steps that ended since the claim under way was sent
	ahead    int           // how many to claim beyond the free slots: what ends while a claim is under way
	last     store.Place   // all that was due before it has been looked at since front
	front    time.Duration // when to claim from the front again, by Worker.since

	// ———
	wake     chan struct{}   // something may have become runnable
	freed    chan struct{}   // a step has ended
	admitted chan *flight    // a flight got its partition key
	results  chan claimReply // of the claim under way
	aside    atomic.Int64    // of the parked, those whose key is somebody else's for now
	idle     atomic.Bool     // nothing to claim, as far as known: the poller looks
	overdue  atomic.Bool     // a buffered claim's instance is over its deadline
	paused   atomic.Bool     // an operator has paused the queue: nothing of it is claimed or started
	urgent   atomic.Int64    // priority of the most urgent buffered claim; MaxInt64: none
	shown    shown
}

type claimReply struct {
	store.Claimed
	after  store.Place
	wanted int
	sent   time.Duration
	took   time.Duration
	err    error
}

func newScheduler(w *Worker, name string, conf Queue) *scheduler {
	s := &scheduler{w: w, name: name, conf: conf, ready: true,
		wake: make(chan struct{}, 1), freed: make(chan struct{}, conf.Concurrency), admitted: make(chan *flight),
		results: make(chan claimReply, 1)}
	s.urgent.Store(math.MaxInt64)
	s.paused.Store(true) // until the first poll
	return s
}

// nudge says that something may have become runnable. It never blocks.
func (s *scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// expect says that something becomes runnable in a while. What the poller would find in time anyway is left to it.
func (s *scheduler) expect(in time.Duration) {
	if in < s.conf.PollMax {
		time.AfterFunc(in, s.nudge)
	}
}

// run is the scheduler's loop: claim, feed, wait. It returns when the worker drains; what it never started is then Stop's.
func (s *scheduler) run() {
	due := time.NewTimer(time.Hour)
	due.Stop()
	defer due.Stop()
	for {
		if s.paused.Load() {
			s.handBack()
		}
		if s.overdue.Swap(false) {
			s.start((*flight).expired)
		}
		s.feed()
		if n := s.demand(); n > 0 {
			s.claim(n)
		}
		s.idle.Store(!s.ready && !s.claiming)
		s.show()
		select {
		case <-s.w.draining:
			s.drain()
			return
		case <-s.freed:
			s.free()
		case f := <-s.admitted:
			s.parked--
			s.enqueue(f)
		case r := <-s.results:
			s.take(r, due)
		case <-s.wake:
			s.ready = true
		case <-due.C:
			s.ready = true
		}
	}
}

// feed starts buffered flights while there are slots.
func (s *scheduler) feed() {
	for len(s.buffer) > 0 && s.running < s.conf.Concurrency && !s.w.isDraining() {
		f := s.buffer[0]
		s.buffer = s.buffer[1:]
		s.fly(f)
	}
	if len(s.buffer) > 0 {
		s.urgent.Store(int64(s.buffer[0].beat.Priority))
	} else {
		s.urgent.Store(math.MaxInt64)
	}
}

func (s *scheduler) fly(f *flight) {
	s.running++
	f.started.Store(true)
	s.w.flying.Add(1)
	s.w.fly(f)
}

// start starts some of what is buffered without a slot: instances over their deadline, of which no step runs any more.
func (s *scheduler) start(these func(*flight) bool) {
	if s.w.isDraining() {
		return
	}
	s.buffer = slices.DeleteFunc(s.buffer, func(f *flight) bool {
		if !these(f) {
			return false
		}
		s.fly(f)
		return true
	})
}

// handBack releases what is buffered: the queue is paused, maybe for days.
func (s *scheduler) handBack() {
	fs := s.buffer
	s.buffer = nil
	if len(fs) == 0 {
		return
	}
	s.w.loops.Go(func() {
		if s.w.giveBack(s.w.claiming, fs); s.w.claiming.Err() != nil {
			return // they are Stop's, unstarted
		}
		for _, f := range fs {
			s.w.land(f)
		}
	})
}

// demand is how many rows to claim now. A free slot is filled at once; the buffer is refilled by halves, so that claims stay large.
func (s *scheduler) demand() int {
	aside := int(s.aside.Load())
	if !s.ready || s.claiming || s.paused.Load() || aside >= s.conf.Concurrency+asideMost {
		return 0
	}
	have := s.running + len(s.buffer) + s.parked - aside
	want := s.conf.Concurrency + s.ahead - have
	if have >= s.conf.Concurrency && want <= s.ahead/2 {
		return 0
	}
	if s.narrow > 0 {
		want = min(want, s.narrow)
	}
	return min(want, claimMost)
}

func (s *scheduler) claim(n int) {
	p := store.ClaimParams{Queue: s.name, Worker: s.w.id, Machines: s.w.machineIDs, Limit: n, Window: n, Lease: s.w.c.Lease,
		Inbox: s.w.c.Env.Limits.Inbox}
	if s.wide {
		p.Window = windowMost
	}
	if s.w.since() < s.front {
		p.After = s.last
	}
	doubt := s.doubt
	delay := backoff(s.failures, 50*time.Millisecond, 5*time.Second)
	// What becomes runnable from here on may be missed by this claim: it sets ready again.
	s.ready, s.claiming, s.ended = false, true, 0
	go func() {
		if !s.w.pause(delay) {
			s.results <- claimReply{wanted: n, err: fsm.ErrDraining}
			return
		}
		sent := s.w.since()
		ctx, cancel := context.WithTimeout(s.w.claiming, statementTimeout)
		defer cancel()
		if doubt {
			if err := s.w.releaseStrays(ctx, s.name); err != nil {
				s.results <- claimReply{wanted: n, err: err}
				return
			}
		}
		got, err := s.w.db.Claim(ctx, p)
		s.results <- claimReply{Claimed: got, after: p.After, wanted: n, sent: sent, took: s.w.since() - sent, err: err}
	}()
}

// take takes in what a claim brought, and decides when to claim again.
func (s *scheduler) take(r claimReply, due *time.Timer) {
	s.claiming = false
	for _, tell := range s.w.hooks.pick {
		s.w.survive(func() { tell(s.w.base, s.name, r.wanted, len(r.Claims), r.took) })
	}
	if r.err != nil {
		s.failed(r)
		return
	}
	s.failures, s.narrow, s.doubt = 0, 0, false
	s.admit(s.w.launch(s, r.Claims, r.sent))
	s.w.reportAside(s.name, r.Aside)
	short := len(r.Claims) < r.wanted
	s.wide = short && r.Moved > 0
	s.advance(&r, short)
	switch {
	case !short, r.Moved > 0:
		s.ready = true // a full claim, or one that cleared the way: there may be more
	case r.after != store.Place{}:
		due.Reset(s.front - s.w.since()) // what is before it?
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
	for _, tell := range s.w.hooks.saturation {
		s.w.survive(func() { tell(s.w.base, s.name, s.running, len(s.buffer), s.conf.Concurrency) })
	}
}

// advance takes down from where the next claims go on. As long as rows that cannot run are being cleared out of the front, that is the front.
func (s *scheduler) advance(r *claimReply, short bool) {
	if (r.after == store.Place{}) && !s.wide {
		s.front = s.w.since() + min(frontTimes*r.Took, frontLate) // its way there and back does not count
	}
	if len(r.Claims) > 0 && (!short || r.Last.Compare(s.last) > 0) {
		s.last = r.Last // a claim that was not full has looked at all that was due
	}
}

// failed decides what follows a claim that failed. Two picks that met on a partition key try again at once, with fewer rows: what each
// could do alone they can do one after the other (T59).
func (s *scheduler) failed(r claimReply) {
	s.ready = true
	if store.IsUniqueViolation(r.err) {
		if s.narrow = max(1, r.wanted/2); r.wanted > 1 {
			return
		}
	}
	s.failures++
	s.doubt = s.doubt || store.Unknown(r.err)
	s.w.trouble("claim", r.err)
}

// admit lets flights in: those with a partition key once they have its lock.
func (s *scheduler) admit(fs []*flight) {
	var keyed []*flight
	for _, f := range fs {
		if f.beat.PartitionKey == "" {
			s.buffer = append(s.buffer, f)
		} else {
			keyed = append(keyed, f)
		}
	}
	if len(keyed) > 0 {
		s.parked += len(keyed)
		s.w.keys.acquire(keyed)
	}
	s.sort()
}

func (s *scheduler) enqueue(f *flight) {
	s.buffer = append(s.buffer, f)
	s.sort()
}

func (s *scheduler) sort() {
	slices.SortStableFunc(s.buffer, func(a, b *flight) int { return cmp.Compare(a.beat.Priority, b.beat.Priority) })
}

// free takes note of the steps that have ended.
func (s *scheduler) free() {
	for n := 1; ; n++ {
		select {
		case <-s.freed:
		default:
			s.running -= n
			s.ended += n
			return
		}
	}
}

// drain ends the loop when no claim is under way any more.
func (s *scheduler) drain() {
	if !s.claiming {
		return
	}
	r := <-s.results
	if r.err == nil {
		s.w.launch(s, r.Claims, r.sent)
		return
	}
	if s.doubt || store.Unknown(r.err) {
		if err := s.w.releaseStrays(s.w.claiming, s.name); err != nil {
			s.w.trouble("give claims back", err)
		}
	}
}
