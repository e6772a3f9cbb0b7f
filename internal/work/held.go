package work

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
)

const (
	// leaveAfter is how long an outcome is held up before it leaves its slot. A lock of a moment does
	// not justify the consequences.
	leaveAfter = 50 * time.Millisecond

	// heldLeast is the pause before the next try of an outcome whose row is locked. It doubles up to
	// heldLate, or, where more of them wait than heldLate is for, heldEach for each. A try does not
	// wait, and shares a batch.
	heldLeast = 5 * time.Millisecond
	heldLate  = 500 * time.Millisecond
	heldEach  = heldLate / 1000
	// illLate is the longest pause after another failure.
	illLate = 5 * time.Second

	// A row that many lock in turn is never free for a try that does not wait. So after waitAfter
	// tries an outcome also waits for its rows: at first for waitLeast, doubled up to waitMost, with
	// pauses of pauseLeast doubled up to pauseMost. At most waitsAtOnce outcomes wait at a time.
	waitAfter   = 4
	waitLeast   = 100 * time.Millisecond
	waitMost    = 2 * time.Second
	pauseLeast  = 250 * time.Millisecond
	pauseMost   = 10 * time.Second
	waitsAtOnce = 2
)

// held keeps the outcomes that could not be committed until they are tried again. For most of them,
// an open transaction outside of the engine has locked their row or their parent's.
//
// No other outcome waits for them. A try goes the usual way, and leaves out rows that are still
// locked. The few outcomes that wait for their rows have separate turns, and leave one connection
// of the pool to others. An outcome that is held up for longer leaves its slot, or the room that
// its queue has outside: the heartbeat extends its claim as before, and the outcome is committed
// when it can be, but the queue goes on. Only beyond heldMost or outsideBytes do outcomes keep what
// they have.
//
// Leaving its slot costs an outcome nothing but run-ahead. Code that still has to run after its
// commit (a handler if Postgres refused the outcome, a step whose own transaction was undone) gets
// a slot again through the queue's buffer.
type held struct {
	c      *committer
	crowds crowds

	mu      sync.Mutex
	waiting []*pending
	waits   int  // tries under way that wait for their rows
	probing bool // a probe is under way
	closed  bool
	wake    chan struct{}
}

// hindrance describes why an outcome is not committed yet.
type hindrance struct {
	by     hinderer
	since  time.Duration
	parent int64         // for which it waits, maybe, with others: see crowds; 0: none
	tries  int           // tries that failed
	due    time.Duration // when to try again
	waits  int           // tries that waited for its rows
	rests  time.Duration // when it may wait for them again
}

type hinderer int

const (
	byRow    hinderer = iota // somebody has its row locked, or its parent's
	byLock                   // a statement waited for somebody's lock, perhaps of a correlation key
	byItself                 // its commit failed
)

func newHeld(c *committer) *held {
	return &held{c: c, wake: make(chan struct{}, 1)}
}

// tries returns how often an outcome was tried in vain.
func (p *pending) tries() int {
	if p.held == nil {
		return 0
	}
	return p.held.tries
}

// add takes outcomes that could not be committed for now.
func (h *held) add(batch []*pending, by hinderer) {
	h.mu.Lock()
	late := max(heldLate, heldEach*time.Duration(len(h.waiting)))
	h.mu.Unlock()
	if by == byItself {
		late = illLate
	}
	for _, p := range batch {
		h.delay(p, by, pace.Backoff(p.tries()+1, heldLeast, late))
	}
}

// delay takes an outcome that is to be tried again after a pause.
func (h *held) delay(p *pending, by hinderer, pause time.Duration) {
	now := h.c.since()
	if p.held == nil {
		p.held = &hindrance{since: now}
	}
	if by == byRow && p.held.parent == 0 && p.terminal() && p.entry.Claim.Parent != 0 {
		p.held.parent = p.entry.Claim.Parent
		h.crowds.joins(p.held.parent, now)
	}
	h.mu.Lock()
	p.held.by, p.held.due = by, now+pause
	p.held.tries++
	h.mu.Unlock()
	if p.held.due-p.held.since >= leaveAfter {
		p.to.leave()
	}
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.waiting = append(h.waiting, p)
	}
	h.mu.Unlock()
	if closed {
		h.c.answer(p, commitReply{abandoned: true})
		return
	}
	h.signal()
}

// close returns the outcomes that wait, and makes held take no more.
func (h *held) close() []*pending {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.waiting
}

func (h *held) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run sends the outcomes on their way again, until the committer stops.
func (h *held) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-h.c.quit:
			return
		case <-h.wake:
		case <-timer.C:
		}
		timer.Reset(h.send())
	}
}

// send sends the outcomes that are due, and returns for how long no other will be.
func (h *held) send() time.Duration {
	now := h.c.since()
	h.mu.Lock()
	family := h.patient(now)
	probing := h.probing
	next := now + time.Hour
	rest := h.waiting[:0]
	var due, probes []*pending
	families := map[int64][]*pending{}
	for _, p := range h.waiting {
		switch {
		case p.held.due > now:
			next = min(next, p.held.due)
			rest = append(rest, p)
		case !p.probe && p.held.parent != 0 && p.held.by == byRow:
			families[p.held.parent] = append(families[p.held.parent], p)
		case !p.probe:
			due = append(due, p)
		case probing:
			rest = append(rest, p)
		default:
			probes = append(probes, p)
		}
	}
	var idle []*pending
	for parent, siblings := range families {
		try, until := h.scouts(parent, siblings, now)
		for _, p := range siblings[try:] {
			p.held.due = until
			next = min(next, until)
		}
		due, idle = append(due, siblings[:try]...), append(idle, siblings[try:]...)
	}
	rest = append(rest, idle...)
	clear(h.waiting[len(rest):])
	h.waiting = rest
	h.probing = probing || len(probes) > 0
	h.mu.Unlock()
	for _, p := range idle {
		p.to.leave() // nobody else takes what waits, so it cannot be answered meanwhile
	}
	if len(family) > 0 {
		h.c.running.Go(func() { h.waitFor(family) })
	}
	if len(probes) > 0 {
		h.c.running.Go(func() { h.probe(probes) })
	}
	kept, voided := h.c.sift(due)
	if len(voided) > 0 {
		h.c.running.Go(func() { h.c.drop(voided) })
	}
	for _, p := range kept {
		h.c.send(p)
	}
	return max(time.Millisecond, next-now)
}

// scouts puts the siblings in front that try next: those that have tried least often. It returns
// how many try now, and until when the others wait: see crowds. The caller holds mu.
func (h *held) scouts(parent int64, siblings []*pending, now time.Duration) (try int, until time.Duration) {
	try, until = h.crowds.scout(parent, now)
	if try = min(try, len(siblings)); try < len(siblings) {
		slices.SortStableFunc(siblings, func(a, b *pending) int { return cmp.Compare(a.held.tries, b.held.tries) })
	}
	return try, until
}

// follow makes the outcomes due that wait for a parent's row, since one of them has been committed.
func (h *held) follow(parent int64) {
	h.mu.Lock()
	for _, p := range h.waiting {
		if p.held.parent == parent && p.held.by == byRow {
			p.held.due = 0
		}
	}
	h.mu.Unlock()
	h.signal()
}

// patient takes the outcome that is to wait for its rows next, if there is a turn: the one that has
// waited least often, and of several the one that came first. Every other time it also takes its
// siblings, which may all be waiting for one parent. The caller holds mu.
func (h *held) patient(now time.Duration) (family []*pending) {
	if h.waits == waitsAtOnce {
		return nil
	}
	var first *pending
	for _, p := range h.waiting {
		if p.held.by == byRow && p.held.tries >= waitAfter && p.held.rests <= now && (first == nil || p.held.waits < first.held.waits) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	h.waits++
	parent := first.entry.Claim.Parent
	along := parent != 0 && first.terminal() && !first.probe && first.held.waits%2 == 0
	rest := h.waiting[:0]
	for _, p := range h.waiting {
		if p == first || along && !p.probe && len(family) < commitMost && p.terminal() && p.entry.Claim.Parent == parent && p.held.by == byRow {
			family = append(family, p)
		} else {
			rest = append(rest, p)
		}
	}
	clear(h.waiting[len(rest):])
	h.waiting = rest
	return family
}

// waitFor tries outcomes that wait for their rows.
func (h *held) waitFor(family []*pending) {
	first := family[0]
	wait := min(waitMost, waitLeast<<min(first.held.waits, 10))
	if family = h.c.unvoided(family); len(family) > 0 {
		for _, p := range family {
			p.held.waits++
			p.held.rests = h.c.since() + wait + pace.Backoff(p.held.waits, pauseLeast, pauseMost)
		}
		if family[0].probe {
			h.c.probe(family, wait)
		} else {
			h.c.commitBatch(family, attempt{wait: wait, alone: true})
		}
	}
	h.mu.Lock()
	h.waits--
	h.mu.Unlock()
	h.signal()
}

// probe finds out whether outcomes took effect whose attempt may have.
func (h *held) probe(batch []*pending) {
	h.c.probe(batch, 0)
	h.mu.Lock()
	h.probing = false
	h.mu.Unlock()
	h.signal()
}
