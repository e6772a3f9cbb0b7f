package work

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// asideMost bounds the claims beyond the slots that wait for keys of stalled processes. Other
// processes could make each of these claims once the stalled ones are gone. But at the bound the
// scheduler claims nothing any more.
const asideMost = 100

// scheduler claims work of one queue and feeds it to slots. Only its loop uses the fields below the
// first block.
type scheduler struct {
	*process
	*queue
	flights    *flights
	claims     *claims
	keys       *keyring
	executor   *executor
	promotions *promotions

	slots
	underWay
	outlook
	buffer    []*flight // claimed, waiting for a slot; most urgent first
	parked    int       // claimed, waiting for their partition key: outside the slots
	collector collector // claimed, waiting for others of their batch step
}

// slots counts the slots of a queue that are not free.
type slots struct {
	running  int // in use: a slot is free once its outcome is handed to the committer
	reserved int // reserved by inserts under way
	offered  int // inserts may reserve them until the offer is withdrawn
}

// underWay is what a scheduler knows of its claims that have not been answered.
type underWay struct {
	picking  bool            // one has not answered at all
	asked    int             // claims that have not brought their rows yet: at most two
	coming   int             // how many rows the first of them will bring
	results  chan claimReply // the answers: two each, at most
	answered chan struct{}   // closed when the last claim that was sent has answered
	failures int             // claims in a row that failed
	strayed  bool            // the last claim looked for strays: the next one does not
	unsure   bool            // one of them got no answer, and may have taken effect
	stepped  int             // steps that ended since the claim under way was sent
	lefts    int64           // gates.lefts when the claim under way was sent
}

// outlook is what the answers to claims have shown: whether and where to claim next.
type outlook struct {
	ready   bool          // there may be something to claim
	clear   bool          // the last claim that was answered began at the front, and left nothing that can run
	wide    bool          // the last claim found rows in front that cannot run: look further
	keyed   time.Duration // until when claims heed partition keys
	blocked bool          // some of them because someone has locked the row for which their key waits: move them
	narrow  int           // most rows to claim after a collision on a partition key; 0: as many as wanted
	ahead   int           // how many to claim beyond the free slots, for steps that end while a claim is under way
	last    store.Place   // since front, claims have looked at all rows that were due before it
	turn    store.Turn    // where the next claim goes on through the lines at gates
	looked  int64         // the number at which the last claim looked at jumps, and what it was told
	told    store.Jumps
	yields  yields        // when claims leave places at gates to other queues
	front   time.Duration // when to claim from the front again, by process.since
	// The server times of the last claim, and of the last one from the front.
	took, frontTook time.Duration
}

func newScheduler(p *process, q *queue, flights *flights, claims *claims, keys *keyring, executor *executor, promotions *promotions,
) *scheduler {
	none := make(chan struct{})
	close(none)
	return &scheduler{process: p, queue: q, flights: flights, claims: claims, keys: keys, executor: executor, promotions: promotions,
		underWay: underWay{results: make(chan claimReply, 4), answered: none}, outlook: outlook{ready: true}}
}

// run is the scheduler's loop: claim, feed, wait. It returns when the worker drains. Stop releases
// the flights that it never started.
func (s *scheduler) run() {
	due := time.NewTimer(time.Hour)
	due.Stop()
	defer due.Stop()
	ripe := time.NewTimer(time.Hour)
	ripe.Stop()
	defer ripe.Stop()
	for {
		s.withdraw()
		if s.doubt.Swap(false) {
			s.unsure, s.ready = true, true
		}
		if s.paused.Load() {
			s.handBack()
		}
		if s.overdue.Swap(false) {
			s.startOverdue()
		}
		s.collector.ripen(s.since())
		s.feed()
		s.collector.ring(ripe, s.since())
		if n := s.demand(); n > 0 {
			s.claim(n)
		}
		s.idle.Store(!s.ready && !s.picking)
		s.show()
		s.offerSlots()
		select {
		case <-s.draining:
			s.drain()
			return
		case <-s.freed:
			s.free()
		case f := <-s.admitted:
			s.parked--
			s.enqueue(f)
		case f := <-s.returned:
			s.returns(f)
		case r := <-s.results:
			s.take(r, due)
		case <-s.settled.some:
			for _, r := range s.settled.take() {
				s.settle(r)
			}
		case <-s.wake:
			s.ready = true
		case <-due.C:
			s.ready = true
		case <-ripe.C: // a group is due: see ripen
		}
	}
}

// feed starts buffered flights, and groups of them that are due, while there are slots.
func (s *scheduler) feed() {
	for s.running+s.reserved < s.conf.Concurrency && !s.isDraining() {
		if g := s.collector.next(s.buffer); g != nil {
			s.startGroup(g)
			continue
		}
		if len(s.buffer) == 0 {
			break
		}
		f := s.buffer[0]
		s.buffer = s.buffer[1:]
		s.start(f)
	}
	urgent := int64(math.MaxInt64)
	if len(s.buffer) > 0 {
		urgent = int64(s.buffer[0].beat.Priority)
	}
	if len(s.collector.due) > 0 {
		urgent = min(urgent, int64(s.collector.due[0].priority))
	}
	s.urgent.Store(urgent)
}

// start puts a flight into a slot.
func (s *scheduler) start(f *flight) {
	s.running++
	s.executor.execute(f)
}

// startOverdue starts flights that are over their deadline, even without a free slot: no step of
// them runs any more.
func (s *scheduler) startOverdue() {
	if s.isDraining() {
		return
	}
	s.buffer = slices.DeleteFunc(s.buffer, func(f *flight) bool {
		if !f.expired() {
			return false
		}
		s.start(f)
		return true
	})
	for _, f := range s.collector.takeOut((*flight).expired) {
		s.start(f)
	}
}

// handBack releases the buffered and collected claims, since the queue is paused, perhaps for days.
func (s *scheduler) handBack() {
	fs := slices.Concat(s.buffer, s.collector.takeOut(func(*flight) bool { return true }))
	s.buffer = nil
	if len(fs) == 0 {
		return
	}
	s.loops.Go(func() {
		s.claims.giveBack(s.claiming, fs, s.landed)
	})
}

// landed lands a flight that was given back. Once the queue claims no more, Stop does so.
func (s *scheduler) landed(f *flight) {
	if s.claiming.Err() == nil {
		s.flights.land(f)
	}
}

// demand returns the number of rows to claim now. It fills a free slot at once, and refills the
// buffer by halves, so that claims stay large. For a batch step, it wants enough to fill a group
// for each free slot, and to complete the next group while the slots are taken.
func (s *scheduler) demand() int {
	aside := int(s.aside.Load())
	if !s.ready || s.picking || s.paused.Load() || aside >= s.conf.Concurrency+asideMost || s.unsure && s.asked+s.reserved > 0 {
		return 0
	}
	have := s.running + s.reserved + s.coming + len(s.buffer) + len(s.collector.due) + s.parked - aside
	want := s.conf.Concurrency + s.ahead - have
	if have < s.conf.Concurrency {
		want = s.collector.wants(want)
	} else if want += s.collector.lacks(); want <= s.ahead/2 {
		return 0
	}
	if s.narrow > 0 {
		want = min(want, s.narrow)
	}
	return min(want, claimMost)
}

// admit takes in flights, those with a partition key after they have it.
func (s *scheduler) admit(fs []*flight) {
	var keyed []*flight
	for _, f := range fs {
		if f.beat.PartitionKey == "" {
			s.put(f)
		} else {
			keyed = append(keyed, f)
		}
	}
	if len(keyed) > 0 {
		granted := s.keys.acquire(keyed)
		for _, f := range granted {
			s.put(f)
		}
		s.parked += len(keyed) - len(granted)
	}
	s.sort()
	s.hasten()
}

func (s *scheduler) enqueue(f *flight) {
	s.put(f)
	s.sort()
	s.hasten()
}

// put makes a flight wait for a slot, or for others of its batch step. One that has run before, and
// left its slot, goes on alone.
func (s *scheduler) put(f *flight) {
	if _, b := s.batchOf(f.beat); b != nil && f.resumes == nil {
		s.collect(f)
		return
	}
	s.buffer = append(s.buffer, f)
}

func (s *scheduler) sort() {
	slices.SortStableFunc(s.buffer, func(a, b *flight) int { return cmp.Compare(a.beat.Priority, b.beat.Priority) })
}

// returns puts a flight that has left its slot in line for another. From here on it is like one
// that never had a slot, and is released like other buffered ones.
func (s *scheduler) returns(f *flight) {
	f.started.Store(false)
	s.flights.started.Done()
	s.enqueue(f)
}

// free counts the slots of the steps that have ended.
func (s *scheduler) free() {
	for n := 1; ; n++ {
		select {
		case <-s.freed:
		default:
			s.running -= n
			s.stepped += n
			return
		}
	}
}

// drain returns once no claim is under way any more, nor an insert that claims.
func (s *scheduler) drain() {
	defer s.drainSettled(true)
	s.withdraw()
	if s.asked+s.reserved == 0 {
		return
	}
	given := s.claiming.Done()
	for s.asked+s.reserved > 0 {
		select {
		case r := <-s.results:
			s.drained(&r)
		case <-s.settled.some:
			s.drainSettled(false)
		case <-given: // who inserts does not stop for us: see disown
			s.reserved, given = 0, nil
		}
	}
	if s.unsure {
		if err := s.claims.releaseStrays(s.claiming, s.name); err != nil {
			s.trouble("give claims back", err)
		}
	}
}

// drained processes the answer to a claim that was under way when the worker began to drain.
func (s *scheduler) drained(r *claimReply) {
	if r.sure != nil {
		return
	}
	s.asked--
	s.promotions.add(r.Unsettled)
	if r.err == nil {
		s.flights.launch(s.queue, r.Claims, r.sent)
		return
	}
	s.unsure = s.unsure || r.doubt || store.Unknown(r.err)
}
