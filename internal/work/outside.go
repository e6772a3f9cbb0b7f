package work

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// A slot is for running code. When an outcome goes to the committer, its flight leaves its slot,
// and another step may begin in it, so that a round trip and a flush of the log do not keep the
// slots of a small worker idle. Nothing begins that follows from the outcome: the flight keeps its
// claim, its lease, its partition key and its places at gates until the outcome is durable. A claim
// that is kept for a next step keeps its slot, too, since that step follows from the outcome.
//
// The outcomes that have no slot are bounded, by number and by bytes. Beyond that, outcomes keep
// their slots. So the slots of a process fill up whose database has stopped to take commits, it
// claims no more, and its crash makes a bounded number of steps run again.

const (
	// committingEach bounds the outcomes of a queue that have left their slots and are on their way to
	// the database, for each of its slots, and committingMost all of a queue. Steps that take less
	// than a commit end in larger numbers than there are slots while one is under way.
	committingEach = 4
	committingMost = 1000
	// heldMost bounds the outcomes of a process that have no slot and are held up: see held. They do
	// not count as committing ones, so that a few rows that another session has locked do not take the
	// room of their queue. From crowdedFrom of them on, no child begins whose parent is locked: see
	// crowds. The rest of the room is for rows that are locked while a step runs.
	heldMost    = 10_000
	crowdedFrom = 500
	// outsideBytes bounds what the flights of a process without a slot have in memory, for either
	// reason.
	outsideBytes = 64 << 20
)

// whereabouts say where a flight is, as far as slots are concerned.
type whereabouts int8

const (
	nowhere    whereabouts = iota // it has had no slot, or waits for another one
	inSlot                        // its code runs, or its outcome has found no room outside
	committing                    // it has left its slot with its outcome
	heldUp                        // it has left its slot, since its outcome is held up
)

// outside counts the flights of a process that have left their slots with an outcome.
type outside struct {
	bytes                 atomic.Int64
	held                  atomic.Int64
	heldMost, crowdedFrom int64

	until atomic.Int64 // by process.since: until when the steps that gave way count as a crowd

	mu    sync.Mutex
	again time.Duration           // by process.since: the last turn of a step that gave way
	seen  map[int64]time.Duration // when a parent was last found held, or, by -id, the portion of a stream
}

func newOutside() outside { return outside{heldMost: heldMost, crowdedFrom: crowdedFrom} }

// crowded reports whether as many outcomes as from are held up, or were until lately, or half of
// all bytes.
func (o *outside) crowded(now time.Duration, from int64) bool {
	held := o.held.Load()
	return held > 0 && (held >= from || o.bytes.Load() >= outsideBytes/2) || now < time.Duration(o.until.Load())
}

// turn returns when a step comes again that gives way to a lock: after a pause, and then in
// turns of turnEach. The first time it comes after the pause alone, since a lock may last for a
// moment.
func (o *outside) turn(what int64, now, pause time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until.Store(int64(now + crowdLasts))
	_, again := o.seen[what]
	if len(o.seen) >= seenMost {
		maps.DeleteFunc(o.seen, func(_ int64, at time.Duration) bool { return now-at > 2*crowdMost })
	}
	if o.seen == nil {
		o.seen = map[int64]time.Duration{}
	}
	if again || len(o.seen) < seenMost {
		o.seen[what] = now
	}
	if !again && len(o.seen) < seenMost {
		return pause
	}
	o.again = max(o.again, now) + turnEach
	return max(o.again-now, pause)
}

// knows reports whether a parent or a stream was found held, and not free since.
func (o *outside) knows(what int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.seen[what]
	return ok
}

func (o *outside) forget(what int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, what)
}

// room takes n of the bounded amount, unless that would be more than most.
func room(of *atomic.Int64, n, most int64) bool {
	if of.Add(n) <= most {
		return true
	}
	of.Add(-n)
	return false
}

// committingRoom returns how many flights of a queue may be without a slot while they are
// committed.
func committingRoom(slots int) int64 {
	return int64(min(committingEach*slots, max(committingMost, slots)))
}

// handOver frees the slot of a flight whose outcome is about to go to the committer, if there is
// room outside.
func (fs *flights) handOver(f *flight, outcome int) {
	q := f.queue
	if !room(&q.shown.committing, 1, q.committingMost) {
		return
	}
	weight := int64(outcome) + weigh(f.claim)
	if !room(&fs.outside.bytes, weight, outsideBytes) {
		q.shown.committing.Add(-1)
		return
	}
	f.where, f.weight = committing, weight
	fs.vacate(f)
}

// leave takes a flight out of its slot, or out of the room of its queue, since its outcome is held
// up. It does nothing if there is no room for more such flights. The heartbeat extends its claim as
// before, and Stop waits for it.
func (fs *flights) leave(f *flight, outcome int) {
	if f.where == heldUp || !room(&fs.outside.held, 1, fs.outside.heldMost) {
		return
	}
	if f.where == committing {
		f.queue.shown.committing.Add(-1)
	} else {
		weight := int64(outcome) + weigh(f.claim)
		if !room(&fs.outside.bytes, weight, outsideBytes) {
			fs.outside.held.Add(-1)
			return
		}
		f.weight = weight
		fs.vacate(f)
	}
	f.where = heldUp
	f.queue.shown.held.Add(1)
}

// settleIn gives back the room that a flight has taken outside, since it has a slot again, or ends.
func (fs *flights) settleIn(f *flight) {
	switch f.where {
	case committing:
		f.queue.shown.committing.Add(-1)
	case heldUp:
		fs.outside.held.Add(-1)
		f.queue.shown.held.Add(-1)
	default:
		return
	}
	fs.outside.bytes.Add(-f.weight)
	f.where, f.weight = nowhere, 0
}

// outside reports whether a flight has left its slot with its outcome.
func (f *flight) outside() bool { return f.where == committing || f.where == heldUp }

// weigh returns how many bytes of values a claim has in memory.
func weigh(c *step.Claim) int64 {
	n := len(c.State)
	for i := range c.Awaited {
		n += len(c.Awaited[i].Payload)
	}
	for i := range c.Children {
		n += c.Children[i].Bytes()
	}
	for i := range c.Upstream {
		n += c.Upstream[i].Child.Bytes()
	}
	return int64(n)
}
