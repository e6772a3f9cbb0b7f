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

// giveBack releases claims whose step has no outcome. It retries failures until ctx ends. After
// that the lease decides.
func (c *claims) giveBack(ctx context.Context, fs []*flight) {
	c.back(ctx, fs, func(ctx context.Context, held []*step.Claim) (int, store.Promotion, error) {
		return c.db.Release(ctx, c.id, held)
	})
}

// back gives claims back by a statement.
func (c *claims) back(ctx context.Context, fs []*flight, give func(context.Context, []*step.Claim) (int, store.Promotion, error)) {
	for n := 0; pace.Sleep(ctx, pace.Backoff(n, 50*time.Millisecond, time.Second)); n++ {
		var held []*step.Claim
		for _, f := range fs {
			if c.flights.current(f) {
				held = append(held, f.claim)
			}
		}
		if len(held) == 0 {
			return
		}
		timed, cancel := context.WithTimeout(ctx, statementTimeout)
		released, p, err := give(timed, held)
		cancel()
		if err == nil {
			if released < len(held) { // some were taken away, and the answer does not say which
				for _, f := range fs {
					f.taken.Store(true)
				}
			}
			c.reportRefused("give an instance back", p.Refused)
			c.promotions.add(p.Missed)
			c.Nudge(p.Queues...)
			for _, f := range fs {
				f.queue.nudge()
			}
			return
		}
		c.trouble("give claims back", err)
	}
}

// releaseStrays gives back the rows of a claim that got no answer. Nobody in this process knows of
// them: they would wait for their lease, and count as crashed. No other claim of the queue may be
// under way. If a row is no longer a stray when it is released, its token protects it.
func (c *claims) releaseStrays(ctx context.Context, queue string) error {
	held, err := c.db.Held(ctx, c.id, queue)
	if err != nil {
		return err
	}
	strays := slices.DeleteFunc(held, func(one *step.Claim) bool { return c.flights.has(one) })
	if len(strays) == 0 {
		return nil
	}
	_, p, err := c.db.Release(ctx, c.id, strays)
	if err != nil {
		return err
	}
	c.reportRefused("give an instance back", p.Refused)
	c.promotions.add(p.Missed)
	c.Nudge(p.Queues...)
	c.left()
	return nil
}
