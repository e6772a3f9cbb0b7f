package work

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// busyAgain is in how long a claim is repeated that left a gate to another claim. That one holds
	// the lock for some milliseconds.
	busyAgain = 4 * time.Millisecond
	// cutTimes × the server time of a claim that found nothing on its way through some of the lines is
	// the pause before the next one goes on.
	cutTimes = 4
	// yieldFor is for how long claims of a queue leave a place at a gate to other queues that are
	// ahead of it there, once in each yieldEach. So a place that those queues do not take, since they
	// have no free slots, is lost for a fifth of the time at most, and a queue that is ahead has one a
	// second after it has come to be free.
	yieldFor, yieldEach = 200 * time.Millisecond, time.Second
	// rivalAgain is in how long a claim is repeated that has found no place at a gate at which another
	// queue is in line, too: several times while that one yields.
	rivalAgain = yieldFor / 4
	// lookAgain is how often a poll looks for instances in line although there seem to be none.
	lookAgain = 30 * time.Second
)

// gates holds the gates that the last poll has found. Until the first poll all queues of a worker
// are paused, so it claims nothing before it knows of them.
type gates struct {
	found   atomic.Pointer[store.Gates]
	own     atomic.Pointer[map[string]int]  // places of keys that have their own
	lefts   atomic.Int64                    // how many claims have ended
	lined   atomic.Pointer[map[string]bool] // queues with instances in line, as of the last look: see store.Polled
	looked  atomic.Int64                    // when that was, in ns of the process
	regroup chan struct{}                   // the gates may concern others than before: see refiler; nil without a loop
}

// obey takes over what a poll has found, and reports whether the gates have changed. lines is nil
// if the poll has not looked.
func (g *gates) obey(now time.Duration, found store.Gates, lines map[string]bool) (changed bool) {
	old := g.found.Swap(&found)
	if lines != nil {
		g.lined.Store(&lines)
		g.looked.Store(int64(now))
	}
	if old == nil && len(found) > 0 || old != nil && found.Regroups(*old) {
		select {
		case g.regroup <- struct{}{}:
		default: // it is noted already
		}
	}
	return old == nil || !slices.Equal(*old, found)
}

// grant takes over which keys have their own places, and reports whether that has changed.
func (g *gates) grant(own map[string]int) (changed bool) {
	old := g.own.Swap(&own)
	return old == nil || !maps.Equal(*old, own)
}

// places returns how many places a key of a gate has; negative: any number.
func (g *gates) places(at store.Passage) int {
	own := g.own.Load()
	if own == nil || at.Places == 0 {
		return at.Places
	}
	if n, ok := (*own)[at.Key]; ok {
		return n
	}
	return at.Places
}

// regrouped reports, once, whether the gates may concern others than before.
func (g *gates) regrouped() bool {
	select {
	case <-g.regroup:
		return true
	default:
		return false
	}
}

// look reports whether a poll has to look for instances in line: while there are gates, after that
// until it finds none, and now and then. An insert that goes by gates of a while ago, in a
// transaction that may last, puts instances in line at a gate that no process knows any more.
func (g *gates) look(now time.Duration) bool {
	return len(g.all()) > 0 || g.waits("") || now-time.Duration(g.looked.Load()) >= lookAgain
}

// waits reports whether instances are in line in a queue, as of the last look: in any, if it has no
// name. Before the first look it reports true.
func (g *gates) waits(queue string) bool {
	lined := g.lined.Load()
	return lined == nil || (*lined)[queue]
}

func (g *gates) all() store.Gates {
	if found := g.found.Load(); found != nil {
		return *found
	}
	return nil
}

// concern reports whether a claim of a queue has to heed gates, and whether the queue has its own.
// It has to where instances are in line at a gate that is gone, too.
func (g *gates) concern(queue string) (some, own bool) {
	all := g.all()
	return all.Concern(queue) || g.waits(queue), all.OfQueue(queue) != nil
}

// keeps reports whether a claim may be kept for another step: if that is behind the gate of which
// the claim has a place, or if neither is behind any. A gate with a rate counts each step.
func (g *gates) keeps(c *step.Claim, name string) bool {
	all := g.all()
	key := all.Of(c.Queue, c.Machine, name, c.Labels, true)
	if own := all.OfQueue(c.Queue); key != c.Gate || own != nil && own.Rate.N > 0 {
		return false
	}
	gate := all.Named(key)
	return gate == nil || gate.Rate.N == 0 && gate.TotalRate.N == 0
}

// scarce reports whether a claim has taken places, which others may wait for when it ends: a claim
// that takes the last place does not find it taken.
func (g *gates) scarce(queue string, c *store.Claimed) bool {
	own := g.all().OfQueue(queue)
	return len(c.Lined) > 0 || own != nil && (own.Places >= 0 || own.Total >= 0) && len(c.Claims) > 0
}

// left notes that a claim has ended, and with it the places that it may have had. Queues that found
// all places of a gate taken, or took some, claim again.
//
// None of these is missed: a claim counts the instances that leave a place from before it is sent
// until after it has set crowded, and is repeated if one has left.
func (p *process) left(c *step.Claim) {
	p.gates.lefts.Add(1)
	for _, q := range p.queues {
		if q.jumps.until(0) >= 0 { // the key at its step, and that of its run
			if q.jumps.open(c.Gate, p.gates.all().Of(c.Queue, c.Machine, c.Step, c.Labels, false)) {
				q.nudge()
			}
		}
		if q.crowded.Swap(false) {
			q.nudge()
		}
	}
}

// yields decides when the claims of a queue yield to other queues.
type yields struct {
	until, next time.Duration // not between these two
}

// now reports whether a claim yields.
func (y *yields) now(now time.Duration) bool { return now < y.until || now >= y.next }

// began notes that a claim has left a place to another queue. It returns in how long this queue may
// take the place if it is still there.
func (y *yields) began(now time.Duration) time.Duration {
	if now >= y.next {
		y.until, y.next = now+yieldFor, now+yieldEach
	}
	return max(0, y.until-now)
}

// sooner returns the lesser of two times from now, of which a negative one is never.
func sooner(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// claimAgain returns in how long a claim at gates is worth repeating that was not full, or a
// negative number.
func claimAgain(c *store.Claimed) time.Duration {
	least := c.NextDue
	if c.Busy {
		least = sooner(least, pace.Jittered(busyAgain))
	}
	if c.Cut {
		least = sooner(least, cutTimes*c.Took)
	}
	if c.Rivals {
		least = sooner(least, pace.Jittered(rivalAgain))
	}
	return least
}
