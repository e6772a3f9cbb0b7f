package work

import (
	"cmp"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// collectMost bounds the flights of one queue that wait for others of their batch step. Beyond it
// the oldest group is complete as it is. It bounds the memory, and what a heartbeat has to extend;
// flights in groups that wait for a slot are bounded like other buffered ones.
const collectMost = 2000

// collector collects the claimed instances of batch steps into groups, each of which becomes one
// call. Only the scheduler's loop uses it, and without batch steps it costs a few comparisons.
//
// Collected flights have no slot, and the scheduler claims on meanwhile: so they keep no other step
// of the queue from running. A group that is due waits for a slot like a buffered flight, and takes
// in further flights until it starts.
type collector struct {
	open    map[groupKey]*group // the groups that take in further flights
	waiting []*group            // groups that are not due, by the time when they will be
	due     []*group            // groups that only wait for a slot, most urgent first
	flights int                 // in all groups
	rows    float64             // how many rows fill a slot, as of the last claim; 0: one
	turn    bool                // the next slot goes to a group, if a flight is as urgent
}

// groupKey says which flights may share a call.
type groupKey struct {
	machine *step.Machine
	step    string
	group   string
	most    int // see step.Machine.BatchSize
}

// batchOf returns the batch step at which a claim is, or to which a migration brings it, and its
// machine; nil if it is at another.
func (p *process) batchOf(c *step.Claim) (*step.Machine, *step.Batch) {
	if !p.batches {
		return nil, nil
	}
	r := p.route(c)
	if r == nil {
		return nil, nil
	}
	return r.machine, r.machine.Steps[r.step].Batch
}

// newGroup returns the group that a flight would begin. An instance of which it is unknown with
// which others it may meet is alone.
func newGroup(p *process, f *flight) *group {
	c := f.beat
	m, b := p.batchOf(c)
	most := m.BatchSize(b, c.Attempt)
	r := p.route(c)
	if c.Unread != nil || c.Ungrouped != nil || c.Alone || (c.Partial || len(r.chain) > 0) && b.Key != nil {
		most = 1 // the state of an older version is converted only when it runs
	}
	return &group{process: p, machine: m, def: b, key: groupKey{m, r.step, c.Group, most}}
}

// collect takes in a flight of a batch step.
func (s *scheduler) collect(f *flight) {
	c, now := &s.collector, s.since()
	fresh := newGroup(s.process, f)
	g := c.open[fresh.key]
	if g == nil {
		g = fresh
		g.began, g.until, g.priority = now, now+g.def.Within, f.beat.Priority
		if g.key.most > 1 {
			if c.open == nil {
				c.open = map[groupKey]*group{}
			}
			c.open[g.key] = g
		}
		at, _ := slices.BinarySearchFunc(c.waiting, g.until, func(g *group, until time.Duration) int { return cmp.Compare(g.until, until+1) })
		c.waiting = slices.Insert(c.waiting, at, g)
	}
	g.members = append(g.members, f)
	g.priority = min(g.priority, f.beat.Priority)
	c.flights++
	full := len(g.members) == g.key.most
	if full {
		delete(c.open, g.key)
	}
	if !g.due && full {
		c.waiting = slices.DeleteFunc(c.waiting, func(other *group) bool { return other == g })
		c.expire(g)
	}
}

// ripen makes groups due whose first flight has waited for long enough, and the oldest ones if too
// many flights wait.
func (c *collector) ripen(now time.Duration) {
	for len(c.waiting) > 0 && (c.waiting[0].until <= now || c.waitingFlights() > collectMost) {
		g := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.expire(g)
	}
}

func (c *collector) waitingFlights() int {
	n := c.flights
	for _, g := range c.due {
		n -= len(g.members)
	}
	return n
}

// expire makes a group due.
func (c *collector) expire(g *group) {
	g.due = true
	c.due = append(c.due, g)
	slices.SortStableFunc(c.due, func(a, b *group) int { return cmp.Compare(a.priority, b.priority) })
}

// next returns the group to which the next free slot goes; nil if it goes to the most urgent
// buffered flight, or there is no group. Between a flight and a group of the same priority slots
// alternate.
func (c *collector) next(buffer []*flight) *group {
	if len(c.due) == 0 {
		return nil
	}
	g := c.due[0]
	if len(buffer) > 0 {
		other := buffer[0].beat.Priority
		if g.priority > other {
			return nil
		}
		if g.priority == other {
			if c.turn = !c.turn; !c.turn {
				return nil
			}
		}
	}
	c.due = c.due[1:]
	c.flights -= len(g.members)
	if c.open[g.key] == g {
		delete(c.open, g.key)
	}
	return g
}

// takeOut removes the flights of which out says so, and returns them.
func (c *collector) takeOut(out func(f *flight) bool) (taken []*flight) {
	if c.flights == 0 {
		return nil
	}
	filter := func(groups []*group) []*group {
		return slices.DeleteFunc(groups, func(g *group) bool {
			g.members = slices.DeleteFunc(g.members, func(f *flight) bool {
				if !out(f) {
					return false
				}
				taken = append(taken, f)
				return true
			})
			if len(g.members) > 0 {
				return false
			}
			if c.open[g.key] == g {
				delete(c.open, g.key)
			}
			return true
		})
	}
	c.waiting, c.due = filter(c.waiting), filter(c.due)
	c.flights -= len(taken)
	return taken
}

// wants returns how many rows to claim for some free slots: more than one for each, if the last
// claim has found instances of batch steps.
func (c *collector) wants(slots int) int {
	if c.rows == 0 {
		return slots
	}
	return int(float64(slots) * c.rows)
}

// lacks returns how many rows would complete the group that gets the next free slot.
func (c *collector) lacks() int {
	for _, groups := range [][]*group{c.due, c.waiting} {
		for _, g := range groups {
			if c.open[g.key] == g {
				return g.key.most - len(g.members)
			}
		}
	}
	return 0
}

// claimed notes how many slots the rows of a claim fill.
func (s *scheduler) claimed(claims []*step.Claim) {
	if !s.batches || len(claims) == 0 {
		return
	}
	slots := 0.0
	for _, c := range claims {
		if m, b := s.batchOf(c); b != nil {
			slots += 1 / float64(m.BatchSize(b, c.Attempt))
		} else {
			slots++
		}
	}
	s.collector.rows = float64(len(claims)) / slots
}

// ring sets the timer for the group that is due next.
func (c *collector) ring(timer *time.Timer, now time.Duration) {
	if len(c.waiting) > 0 {
		timer.Reset(max(0, c.waiting[0].until-now))
	}
}

// startGroup puts a group into a slot.
func (s *scheduler) startGroup(g *group) {
	s.running++
	s.executor.executeGroup(g)
}

// executeGroup runs the flights of a group, whose steps meet in one call. The group has a slot
// until all of them have handed their outcomes over, or landed.
func (e *executor) executeGroup(g *group) {
	g.expected = len(g.members)
	g.holding.Store(int64(len(g.members)))
	for i, f := range g.members {
		f.group, f.place = g, i
		f.started.Store(true)
		f.where = inSlot
		e.flights.started.Add(1)
	}
	now := e.since()
	g.waited = now - g.began
	for _, f := range slices.Clone(g.members) {
		e.runners.add(&execution{executor: e, f: f, m: g.machine, route: e.route(f.claim), begun: now})
	}
}
