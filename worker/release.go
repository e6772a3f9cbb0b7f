package worker

import (
	"context"
	"slices"
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
}

// giveBack releases claims whose step has no outcome. It retries failures, and claims whose rows
// somebody has locked, until ctx ends. After that the lease decides. The others do not wait for
// those: over is called for each flight as soon as its claim has ended, and for all that are left
// when ctx ends.
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

// releaseStrays gives back the rows of a claim that got no answer. Nobody in this process knows of
// them: they would wait for their lease, and count as crashed. No other claim of the queue may be
// under way. If a row is no longer a stray when it is released, its token protects it. A row that
// somebody has locked is left to its lease, since the queue's claims wait for this.
func (c *claims) releaseStrays(ctx context.Context, queue string) error {
	held, err := c.db.Held(ctx, c.id, queue)
	if err != nil {
		return err
	}
	strays := slices.DeleteFunc(held, func(one *step.Claim) bool { return c.flights.has(one) })
	if len(strays) == 0 {
		return nil
	}
	done, err := c.db.Release(ctx, c.id, strays)
	if err != nil {
		return err
	}
	c.reportRefused("give an instance back", done.Refused)
	c.promotions.add(done.Missed)
	c.Nudge(done.Queues...)
	c.left()
	return nil
}
