package work

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// claims gives back claims of this process whose steps do not run.
type claims struct {
	*process
	flights    *flights
	promotions *promotions

	mu     sync.Mutex
	locked []*step.Claim // strays that releaseLocked gives back
}

// giveBack releases claims whose step has no outcome. It retries failures, and claims whose rows
// are locked, until ctx ends. After that the lease decides. The others do not wait for those: over
// is called for each flight as soon as its claim has ended, and for all that are left when ctx
// ends.
func (c *claims) giveBack(ctx context.Context, fs []*flight, over func(*flight)) {
	c.back(ctx, fs, over, func(ctx context.Context, held []*step.Claim) (store.Released, error) {
		return c.db.Release(ctx, c.id, held)
	})
}

// back gives claims back by a statement.
func (c *claims) back(ctx context.Context, fs []*flight, over func(*flight), give func(context.Context, []*step.Claim) (store.Released, error)) {
	for n := 0; len(fs) > 0 && pace.Sleep(ctx, pace.Backoff(n, 50*time.Millisecond, time.Second)); n++ {
		var held []*step.Claim
		for _, f := range fs {
			if c.flights.current(f) {
				held = append(held, f.claim)
			}
		}
		if len(held) == 0 {
			break
		}
		timed, cancel := context.WithTimeout(ctx, statementTimeout)
		done, err := give(timed, held)
		cancel()
		if err != nil {
			c.trouble("give claims back", err)
			continue
		}
		c.reportRefused("give an instance back", done.Refused)
		c.promotions.add(done.Missed)
		c.Nudge(done.Queues...)
		lost := done.Claims+len(done.Locked) < len(held) // some were taken away, and the answer does not say which
		fs = slices.DeleteFunc(slices.Clone(fs), func(f *flight) bool {
			if slices.Contains(done.Locked, f.claim.ID) {
				return false
			}
			if lost {
				f.taken.Store(true)
			}
			f.queue.nudge()
			over(f)
			return true
		})
	}
	for _, f := range fs {
		over(f)
	}
}

// releaseStrays gives back the rows of a claim that got no answer. This process does not know of
// them: they would wait for their lease, and count as crashed. No other claim of the queue may be
// under way. If a row is no longer a stray when it is released, its token protects it. The queue's
// claims wait for this, and not for locked rows: see releaseLocked.
func (c *claims) releaseStrays(ctx context.Context, queue string) error {
	held, err := c.db.Held(ctx, c.id, queue)
	if err != nil {
		return err
	}
	locked, err := c.releaseSome(ctx, slices.DeleteFunc(held, c.flights.has))
	if len(locked) > 0 {
		c.later(locked)
	}
	return err
}

// releaseSome gives strays back, and returns those whose rows are locked.
func (c *claims) releaseSome(ctx context.Context, strays []*step.Claim) (locked []*step.Claim, err error) {
	if len(strays) == 0 {
		return nil, nil
	}
	done, err := c.db.Release(ctx, c.id, strays)
	if err != nil {
		return nil, err
	}
	c.reportRefused("give an instance back", done.Refused)
	c.promotions.add(done.Missed)
	c.Nudge(done.Queues...)
	for _, one := range strays {
		c.left(one)
	}
	return slices.DeleteFunc(strays, func(one *step.Claim) bool { return !slices.Contains(done.Locked, one.ID) }), nil
}

// later hands strays to releaseLocked.
func (c *claims) later(strays []*step.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := len(c.locked) == 0
	for _, one := range strays {
		if !slices.ContainsFunc(c.locked, func(other *step.Claim) bool { return other.ID == one.ID && other.Token == one.Token }) {
			c.locked = append(c.locked, one)
		}
	}
	if idle {
		c.loops.Go(c.releaseLocked)
	}
}

// releaseLocked gives back the strays whose rows were locked, until there are none. A stray that is
// left when the worker drains waits for its lease.
func (c *claims) releaseLocked() {
	for n := 1; c.pause(pace.Backoff(n, 50*time.Millisecond, time.Second)); n++ {
		c.mu.Lock()
		tried := slices.Clone(c.locked)
		c.mu.Unlock()
		// The answer of an insert may still come, long after it was given up.
		ctx, cancel := context.WithTimeout(c.claiming, statementTimeout)
		locked, err := c.releaseSome(ctx, slices.DeleteFunc(slices.Clone(tried), c.flights.has))
		cancel()
		if err != nil {
			c.trouble("give claims back", err)
			continue
		}
		for _, one := range tried {
			if !slices.Contains(locked, one) {
				c.Nudge(one.Queue)
			}
		}
		c.mu.Lock()
		c.locked = append(locked, c.locked[len(tried):]...)
		none := len(c.locked) == 0
		c.mu.Unlock()
		if none {
			return
		}
	}
}
