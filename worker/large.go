package worker

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// What is large is read in a slot, when a step is about to run, and in pages: so the memory that it
// takes is bounded by how many steps run at once, and by Limits.AwaitedBytes and
// Limits.ChildrenBytes for each.

// lend gives a claim the means to read its inbox and the round that joins.
func (fs *flights) lend(c *step.Claim) {
	id, round := c.ID, c.Round
	c.Inbox = func(ctx context.Context, after int64) (page []step.Signal, more bool, err error) {
		err = fs.patiently(ctx, "read an inbox", func(ctx context.Context) (err error) {
			page, more, err = fs.db.Inbox(ctx, id, after)
			return err
		})
		return page, more, err
	}
	if c.Joins() {
		c.ReadRound = func(ctx context.Context) func() ([]step.Child, error) { return fs.round(ctx, id, round) }
	}
}

// round reads the children of a round: each call of next reads a page, an empty one is the end.
func (fs *flights) round(ctx context.Context, parent, round int64) (next func() ([]step.Child, error)) {
	var ids []int64
	known := false
	return func() (page []step.Child, err error) {
		err = fs.patiently(ctx, "read children", func(ctx context.Context) error {
			if !known {
				found, err := fs.db.Round(ctx, parent, round)
				if err != nil {
					return err
				}
				ids, known = found, true
			}
			for page = nil; len(page) == 0 && len(ids) > 0; {
				found, behind, err := fs.db.Children(ctx, ids)
				if err != nil {
					return err
				}
				page, ids = found, behind
			}
			return nil
		})
		return page, err
	}
}

// load reads what the step is to have and the claim did not bring.
func (x *execution) load(ctx context.Context, s *step.Step) error {
	c := x.f.claim
	if c.Partial {
		held := false
		if err := x.patiently(ctx, "read the rest of a claim", func(ctx context.Context) (err error) {
			held, err = x.db.Complete(ctx, x.id, c, x.config.Env.Limits.AwaitedBytes)
			return err
		}); err != nil {
			return err
		}
		if !held {
			x.f.cancel(fsm.ErrLeaseLost)
			return fsm.ErrLeaseLost
		}
	}
	if c.Joins() && c.Children == nil && !s.OnDemand {
		return x.loadChildren(ctx)
	}
	return nil
}

// loadChildren reads the round that has joined, as a whole.
func (x *execution) loadChildren(ctx context.Context) error {
	c, size, most := x.f.claim, 0, x.config.Env.Limits.ChildrenBytes
	next := c.ReadRound(ctx)
	for {
		page, err := next()
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			size += page[i].Bytes()
		}
		if size > most {
			c.Children = nil
			return fmt.Errorf("children: over %d bytes together (Limits.ChildrenBytes), to be read in pages: see StepDef.ChildrenOnDemand: %w",
				most, fsm.ErrTooLarge)
		}
		c.Children = append(c.Children, page...)
	}
}
