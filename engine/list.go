package engine

import (
	"context"
	"iter"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// Query is a [Filter], an order and a place in it.
type Query = fsm.Query

// Page is one part of a list; see [fsm.Page] for what a short one means.
type Page = fsm.RawPage

const (
	// listVisit is how many rows a page may visit: some ten milliseconds' worth.
	listVisit = 10_000
	// allLimit is the limit of the pages of All.
	allLimit = 200
)

// List reads one page of the instances that a query selects, states and results included; fsm.Machine has the typed form. Any number of
// processes may go on where one has ended: a page's cursor is all there is to know.
//
// Pages follow one another by id. Whatever is there all the time, and matches all the time, is listed once, however much is inserted, ends
// or is collected meanwhile; what changes is judged as it is when its page is read. Newest first, what is inserted later is not met. Oldest
// first it is at the end, except for what a transaction has inserted that was still open when the list went past it.
//
// It goes by an index where Key, Parent, Labels or the one status executing is given and finds less than 10,000 instances, and else along
// the primary key, of which one page visits 10,000 rows. Both are one statement; a page that finds too many by the index is two.
//
// Errors: a *[QueryError].
func (e *Engine) List(ctx context.Context, q Query) (page Page, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	p, of, err := list(&q)
	if err != nil {
		return Page{}, err
	}
	var found store.Listed
	err = e.patiently(ctx, task{doing: "list instances"}, func() error {
		found, err = e.store.List(ctx, p)
		return err
	})
	if err != nil {
		return Page{}, err
	}
	for _, row := range found.Instances {
		page.Instances = append(page.Instances, raw(row))
	}
	if found.Next != nil {
		page.Next = cursor{of, *found.Next, found.Walk}.text()
	}
	return page, nil
}

// list checks a query. of: its fingerprint.
func list(q *Query) (p store.ListParams, of [8]byte, err error) {
	p = store.ListParams{OldestFirst: q.OldestFirst, Limit: q.Limit, Visit: listVisit}
	if p.Filter, _, err = criteria(&q.Filter); err != nil {
		return p, of, err
	}
	switch {
	case q.Limit == 0:
		p.Limit = fsm.DefaultLimit
	case q.Limit < 0 || q.Limit > fsm.MaxLimit:
		return p, of, badQuery("Limit", "%d, want 1 to %d", q.Limit, fsm.MaxLimit)
	}
	if of, err = fingerprint(&p.Filter, p.OldestFirst); err != nil || q.After == "" {
		return p, of, err
	}
	c, err := parseCursor(q.After)
	switch {
	case err != nil:
		return p, of, badQuery("After", "%w", err)
	case c.query != of:
		return p, of, badQuery("After", "of a query with another Filter or order")
	}
	p.After, p.Walk = &c.after, c.walk
	return p, of, nil
}

// All yields all instances that a query selects, as [Engine.List] pages through them: Limit is how many it reads at a time, 200 unless
// given, After where it begins. An error is the end, and comes with the zero instance; the cause of ctx's end is one.
//
//	for i, err := range eng.All(ctx, engine.Query{Filter: engine.Filter{Status: []fsm.Status{fsm.StatusFailed}}}) {
func (e *Engine) All(ctx context.Context, q Query) iter.Seq2[fsm.RawInstance, error] {
	return func(yield func(fsm.RawInstance, error) bool) {
		if q.Limit == 0 {
			q.Limit = allLimit
		}
		for q := q; ; { // its own, since a sequence may be ranged over again
			page, err := e.List(ctx, q)
			if err != nil {
				yield(fsm.RawInstance{}, err)
				return
			}
			for _, i := range page.Instances {
				if !yield(i, nil) {
					return
				}
			}
			if q.After = page.Next; page.Next == "" {
				return
			}
		}
	}
}

var _ fsm.Lister = (*Engine)(nil)
