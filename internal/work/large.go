package work

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Large values are read in pages, in a slot, when a step is about to run. So the number of steps
// that run at a time bounds their memory, with Limits.AwaitedBytes and Limits.ChildrenBytes for
// each step.

// lend gives a claim the functions by which its step reads its inbox and the round of children that
// joins, and publishes its progress.
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

// round returns a function that reads the children of a round. Each call returns the next page, and
// an empty page is the end.
func (fs *flights) round(ctx context.Context, parent, round int64) (next func() ([]step.Child, error)) {
	return fs.pages(ctx, func(ctx context.Context) ([]step.Child, []int64, error) { return fs.db.Round(ctx, parent, round) })
}

// pages is like round, where first reads the first page.
func (fs *flights) pages(ctx context.Context, first func(context.Context) (page []step.Child, behind []int64, err error)) (next func() ([]step.Child, error)) {
	var behind []int64
	begun := false
	return func() (page []step.Child, err error) {
		err = fs.patiently(ctx, "read children", func(ctx context.Context) error {
			for page = nil; len(page) == 0 && (!begun || len(behind) > 0); begun = true {
				read := first
				if begun {
					read = func(ctx context.Context) ([]step.Child, []int64, error) { return fs.db.Children(ctx, behind) }
				}
				found, rest, err := read(ctx)
				if err != nil {
					return err
				}
				page, behind = found, rest
			}
			return nil
		})
		return page, err
	}
}

// load reads the values that the step needs and that did not come with the claim.
func (x *execution) load(ctx context.Context, s *step.Step) error {
	if err := x.complete(ctx); err != nil {
		return err
	}
	if err := x.loadUpstream(ctx); err != nil {
		return err
	}
	c := x.f.claim
	if !c.Joins() || c.Children != nil {
		return nil
	}
	if c.Round < 0 {
		if err := x.portion(ctx); err != nil {
			return err
		}
	}
	if !s.OnDemand {
		return x.loadChildren(ctx)
	}
	return nil
}

// feedMost bounds the bytes of results that are read together for all nodes of one claim.
const feedMost = 8 << 20

// upstream reads the results for which claimed nodes have waited, for all nodes at their first
// visit together. Each node reads results that are too large for that, or cannot be read now, in
// its slot.
func (p *process) upstream(ctx context.Context, claims []*step.Claim) {
	var unfed []*step.Claim
	for _, c := range claims {
		if c.Unfed() {
			unfed = append(unfed, c)
		}
	}
	if len(unfed) == 0 {
		return
	}
	if err := p.db.Feed(ctx, unfed, feedMost); err != nil {
		p.trouble("read what nodes have waited for", err)
	}
}

// loadUpstream reads the results for which the node has waited, if they did not come with its
// claim. They come with its first visit only. A later one at its first step, as after a Rewind,
// reads them here.
func (x *execution) loadUpstream(ctx context.Context) error {
	c := x.f.claim
	unfed := func() bool { return c.Unfed() || c.Node != "" && c.Step == x.m.Initial && c.Upstream == nil }
	if !unfed() {
		return nil
	}
	most := x.config.Env.Limits.ChildrenBytes
	err := x.patiently(ctx, "read what a node has waited for", func(ctx context.Context) error {
		return x.db.Feed(ctx, []*step.Claim{c}, most)
	})
	if err == nil && unfed() {
		err = fmt.Errorf("the results for which the node has waited: over %d bytes together (Limits.ChildrenBytes): %w", most, fsm.ErrTooLarge)
	}
	return err
}

// portionWait bounds the wait of a portion of a stream for locked rows, in a slot.
const portionWait = 20 * time.Millisecond

// portion asks which children a stream shows this visit. It asks also if the step reads the
// children itself, since they count as shown.
func (x *execution) portion(ctx context.Context) error {
	wait, o := portionWait, &x.flights.outside
	if o.knows(-x.f.claim.ID) && x.crowd(streamCosts) { // it gives way at once
		wait = time.Millisecond
	}
	return x.show(ctx, func(ctx context.Context, c *step.Claim) (store.Portion, error) { return x.db.Portion(ctx, c, wait) })
}

// show shows the visit what of says that it is shown of a stream. If a child of the portion, or the
// instance itself, is locked, the flight waits for that out of its slot: see hinder.
func (x *execution) show(ctx context.Context, of func(context.Context, *step.Claim) (store.Portion, error)) error {
	c := x.f.claim
	var p store.Portion
	if err := x.patiently(ctx, "read what ended of a stream", func(ctx context.Context) (err error) {
		if p, err = of(ctx, c); store.IsLockTimeout(err) {
			x.hindered = known(err)
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	if x.hindered != nil {
		return x.hindered.safe
	}
	x.flights.outside.forget(-c.ID)
	if !p.Held {
		x.f.cancel(fsm.ErrLeaseLost)
		return fsm.ErrLeaseLost
	}
	if p.Stream {
		c.Portion = &step.Portion{Left: p.Left}
		c.ReadRound = func(ctx context.Context) func() ([]step.Child, error) {
			return x.flights.pages(ctx, func(ctx context.Context) ([]step.Child, []int64, error) { return x.db.Children(ctx, p.IDs) })
		}
	}
	return nil
}

// complete reads the rest of a claim that came without part of its state or signals.
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

// loadChildren reads the whole round that has joined. A portion of a stream ends where more would
// not fit: its rest is shown to later visits.
func (x *execution) loadChildren(ctx context.Context) error {
	c, size, most := x.f.claim, 0, x.config.Env.Limits.ChildrenBytes
	next := c.ReadRound(ctx)
	for {
		page, err := next()
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if size += page[i].Bytes(); size > most {
				if c.Portion != nil && len(c.Children) > 0 {
					return x.shorten(ctx)
				}
				c.Children = nil
				return fmt.Errorf("children: over %d bytes together (Limits.ChildrenBytes): read them in pages, see StepDef.ChildrenOnDemand: %w",
					most, fsm.ErrTooLarge)
			}
			c.Children = append(c.Children, page[i])
		}
	}
}

// shorten ends the portion of a stream behind the children that were read.
func (x *execution) shorten(ctx context.Context) error {
	ids := make([]int64, len(x.f.claim.Children))
	for i := range ids {
		ids[i] = x.f.claim.Children[i].ID
	}
	return x.show(ctx, func(ctx context.Context, c *step.Claim) (store.Portion, error) { return x.db.Shorten(ctx, c, ids) })
}
