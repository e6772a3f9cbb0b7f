package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// Large values are read in pages, in a slot, when a step is about to run. So the number of steps
// that run at a time bounds their memory, with Limits.AwaitedBytes and Limits.ChildrenBytes for
// each step.

// lend lets a claim's step read its inbox, and the round of children that joins, and publish its
// progress.
func (fs *flights) lend(c *step.Claim) {
	id, round := c.ID, c.Round
	c.Inbox = func(ctx context.Context, after int64) (page []step.Signal, more bool, err error) {
		err = fs.patiently(ctx, "read an inbox", func(ctx context.Context) (err error) {
			page, more, err = fs.db.Inbox(ctx, id, after)
			return err
		})
		return page, more, err
	}
	token := c.Token
	c.Publish = func(ctx context.Context, progress json.RawMessage) error {
		return fs.patiently(ctx, "publish progress", func(ctx context.Context) error {
			held, err := fs.db.Publish(ctx, fs.id, id, token, progress)
			if err == nil && !held {
				err = fsm.ErrLeaseLost
			}
			return err
		})
	}
	if c.Joins() {
		c.ReadRound = func(ctx context.Context) func() ([]step.Child, error) { return fs.round(ctx, id, round) }
	}
}

// round returns a function that reads the children of a round: each call of next reads a page, and
// an empty page is the end.
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

// load reads the values that the step needs and the claim did not bring.
func (x *execution) load(ctx context.Context, s *step.Step) error {
	if err := x.complete(ctx); err != nil {
		return err
	}
	if c := x.f.claim; c.Joins() && c.Children == nil && !s.OnDemand {
		return x.loadChildren(ctx)
	}
	return nil
}

// complete reads the rest of a claim that came without all of its state or signals.
func (x *execution) complete(ctx context.Context) error {
	c := x.f.claim
	if c.Unread != nil {
		return c.Unread
	}
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
	return nil
}

// loadChildren reads the whole round that has joined.
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
