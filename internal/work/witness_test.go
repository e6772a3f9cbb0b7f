package work

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// witness watches what runs, and reports what must never happen.
type witness struct {
	s        *scene
	mu       sync.Mutex
	inKey    map[string][]*visit
	open     map[claimed]*visit // the visits that have begun and whose outcome is not durable
	running  map[*visit]bool    // the visits whose step runs
	visits   []*visit
	problems []string
	// lax lets the visits of a key overlap: a test cuts the connection of its lock on purpose, or
	// there is none.
	lax bool
	// leased is an instance that is left to its lease on purpose, outside of its slot.
	leased int64
}

type claimed struct{ id, token int64 }

// visit is one run of a step.
type visit struct {
	claim    step.Claim
	worker   string
	group    *group // with which it shares a slot; nil: it has one of its own
	from, to time.Time
	durable  time.Time // when the claim ended in the database
	cause    error     // why its context ended, as of its return
}

func newWitness(s *scene) *witness {
	w := &witness{s: s, inKey: map[string][]*visit{}, open: map[claimed]*visit{}, running: map[*visit]bool{}}
	s.db.over = w.over
	return w
}

func (w *witness) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *witness) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.problems)
}

// beginBatch is begin for the call of a batch step. All members of a group share one slot, also the
// members of another call.
func (w *witness) beginBatch(p *player, members []step.Member) (end func()) {
	ends := make([]func(), len(members))
	for i, m := range members {
		p.flights.mu.Lock()
		f := p.flights.byID[m.Claim.ID]
		p.flights.mu.Unlock()
		var shares *group
		if f != nil && f.claim.Token == m.Claim.Token {
			shares = f.group
		}
		ends[i] = w.enter(p, m.Claim, shares)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// begin is called when a step begins, and the returned end when it returns.
func (w *witness) begin(p *player, c *step.Claim) (end func()) { return w.enter(p, c, nil) }

// enter is begin for a step in a separate slot, or in the slot of a group.
func (w *witness) enter(p *player, c *step.Claim, shares *group) (end func()) {
	v := &visit{claim: *c, worker: p.id, group: shares, from: time.Now()}
	r := w.s.db.look(c.ID)
	fenced := r.fence(c, p.id)
	if fenced && r.lease.Before(time.Now()) || !fenced && r.Token != c.Token {
		w.problem("instance %d begins a step under a lease that is over", c.ID)
	}
	if fenced && r.Visit < c.Visit {
		w.problem("instance %d begins visit %d, and visit %d has not ended in the database", c.ID, c.Visit, r.Visit)
	}
	key, slot := c.PartitionKey, claimed{c.ID, c.Token}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visits = append(w.visits, v)
	if key != "" {
		if others := w.inKey[key]; len(others) > 0 && !w.lax {
			w.problems = append(w.problems, fmt.Sprintf("instances %d and %d overlap in key %q", others[0].claim.ID, c.ID, key))
		}
		w.inKey[key] = append(w.inKey[key], v)
	}
	w.open[slot] = v
	w.running[v] = true
	ours := func(other *visit) bool {
		return other.worker == p.id && other.claim.Queue == c.Queue && other.claim.ID != w.leased
	}
	slots := w.s.config.Queues[c.Queue].Concurrency
	busy, groups := 0, map[*group]bool{nil: false}
	for other := range w.running {
		if ours(other) && !groups[other.group] {
			busy++
			groups[other.group] = other.group != nil
		}
	}
	if busy > slots {
		w.problems = append(w.problems, fmt.Sprintf("%d steps of queue %q run: it has %d slots", busy, c.Queue, slots))
	}
	undurable := 0
	for _, other := range w.open {
		if ours(other) && other.group == nil { // a call counts as often as it has instances
			undurable++
		}
	}
	q := p.queues[c.Queue]
	undurable -= int(q.shown.held.Load()) // these have a bound of their own
	if most := slots + int(q.committingMost); undurable > most {
		w.problems = append(w.problems, fmt.Sprintf("%d steps of queue %q run or are not durable: the bound is %d", undurable, c.Queue, most))
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		v.to = time.Now()
		delete(w.running, v)
		w.inKey[key] = slices.DeleteFunc(w.inKey[key], func(other *visit) bool { return other == v })
	}
}

// over is called by the database when a claim has ended there.
func (w *witness) over(c *step.Claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slot := claimed{c.ID, c.Token}
	if v := w.open[slot]; v != nil {
		v.durable = time.Now()
		delete(w.open, slot)
	}
}

// runs returns the visits of an instance, or all visits, in the order in which they began.
func (w *witness) runs(ids ...int64) (out []*visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.visits {
		if len(ids) == 0 || slices.Contains(ids, v.claim.ID) {
			out = append(out, v)
		}
	}
	return out
}
