package engine

import (
	"context"
	"iter"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
)

// Query is a [Filter], an order and a place in it.
type Query = fsm.Query

// Page is one part of a list. [fsm.Page] says what a short one means.
type Page = fsm.RawPage

const (
	// listVisit is how many rows a page may visit: some ten milliseconds' worth.
	listVisit = 10_000
	// listTime is after which time a page visits no more rows.
	listTime = time.Second
	// allLimit is the limit of the pages of All.
	allLimit = 200
)

// List reads one page of the instances that a query selects, with states and results; fsm.Machine
// has the typed form. Any process may go on where another has ended: the page's cursor holds all
// that it takes.
//
// Pages follow one another by id. List shows once every instance that exists and matches all the
// time, however many others are inserted, end or are deleted meanwhile. It judges an instance that
// changes as it is when its page is read. Newest first, the list does not meet what is inserted
// later. Oldest first, it does, at the end; except what a transaction inserted that was still open
// when the list went past it.
//
// List goes by an index where Key, KeyPrefix, Parent, Labels or the one status executing is given
// and finds less than 10,000 instances. Else it goes along the primary key, or for a Fingerprint,
// the one status failed or a Failure along an index of these, and one page visits 10,000 rows, and
// ends after a second with those that it has come to. Either is one statement; a page that finds
// too many by an index takes another. Page.SearchedTo says how far a page has come that did not
// find enough.
//
// Errors: a *[QueryError].
func (e *Engine) List(ctx context.Context, q Query) (page Page, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	p, of, err := list(&q)
	if err != nil {
		return Page{}, err
	}
	var found query.Listed
	err = e.patiently(ctx, task{doing: "list instances"}, func() error {
		found, err = e.reads.List(ctx, p)
		return err
	})
	if err != nil {
		return Page{}, err
	}
	page.Instances = found.Instances
	if found.Next != nil {
		page.Next, page.SearchedTo = cursor{of, *found.Next, found.Walk}.text(), found.Searched.UTC()
	}
	return page, nil
}

// list checks a query, and returns its fingerprint as well.
func list(q *Query) (p query.ListParams, of [8]byte, err error) {
	p = query.ListParams{OldestFirst: q.OldestFirst, Outline: q.Outline, Limit: q.Limit, Visit: listVisit, Time: listTime}
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
		return p, of, badQuery("After", "it comes from a query with another Filter or order")
	}
	p.After, p.Walk = &c.after, c.walk
	return p, of, nil
}

// CursorAt returns the cursor of the page that begins behind a given instance of a page, for
// callers that show only a part of that page. q is the query of the page, with any After, and next
// is the page's Next.
//
// Errors: a *[QueryError].
func CursorAt(q Query, next string, instance fsm.ID) (string, error) {
	q.After = next
	p, of, err := list(&q)
	if err != nil {
		return "", err
	}
	return cursor{of, int64(instance), p.Walk}.text(), nil
}

// All yields all instances that a query selects, as [Engine.List] pages through them. Limit is the
// size of a page, 200 unless given; After is its beginning. An error ends the sequence, and comes
// with the zero instance; so does the end of ctx, with its cause.
//
//	failed := engine.Query{Filter: engine.Filter{Status: []fsm.Status{fsm.StatusFailed}}}
//	for i, err := range eng.All(ctx, failed) {
func (e *Engine) All(ctx context.Context, q Query) iter.Seq2[fsm.RawInstance, error] {
	return pages(ctx, q, e.List)
}

// pages yields what the pages of a list have.
func pages(ctx context.Context, q Query, list func(context.Context, Query) (Page, error)) iter.Seq2[fsm.RawInstance, error] {
	return func(yield func(fsm.RawInstance, error) bool) {
		if q.Limit == 0 {
			q.Limit = allLimit
		}
		for q := q; ; { // its own, since a sequence may be ranged over again
			page, err := list(ctx, q)
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
