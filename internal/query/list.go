package query

import (
	"context"
	"fmt"
	"math"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// ListParams selects the page to read.
type ListParams struct {
	Filter      store.Filter
	OldestFirst bool
	Outline     bool   // without documents
	After       *int64 // the id that ended the page before; nil: there was none
	Limit       int
	Visit       int           // most rows to visit
	Time        time.Duration // after which the page visits no more rows, if no index finds them; 0: any
	Walk        bool          // do not use the indexes, which are known to find too many rows
}

// Listed is a page of instances.
type Listed struct {
	Instances []fsm.RawInstance
	Next      *int64 // the id that ended this page; nil: there are no more
	Walk      bool   // ListParams.Walk for the following pages
	// Searched is when the last row that the page visited was inserted, if it came to the last one
	// that it may visit before it was full.
	Searched time.Time
}

// List reads a page of the instances that a filter selects, in order of ids. It uses the index of a
// criterion if that finds few rows, and otherwise walks along the primary key, or an index in the
// order of ids. A page may be short or empty, and still have a next one.
func (r *Reader) List(ctx context.Context, p ListParams) (out Listed, err error) {
	// One instance over the limit shows that there is a next page.
	within, fits, limit := p.span(), Where(&p.Filter), p.Limit+1
	out.Instances = make([]fsm.RawInstance, 0, limit) // hosts serve it as JSON
	for _, by := range lookups(&p.Filter) {
		if p.Walk {
			break
		}
		many, err := r.page(ctx, r.through(by), &p, r.find(within, limit, by, fits, p.Outline), &out)
		if err != nil {
			return Listed{}, fmt.Errorf("list instances by an index: %w", err)
		}
		if many == nil || !*many {
			out.cut(p.Limit)
			return out, nil
		}
		out.Instances = out.Instances[:0]
	}
	edge, err := r.page(ctx, r.composer().client, &p, r.walk(within, limit, fits, p.Outline), &out)
	if err != nil {
		return Listed{}, fmt.Errorf("list instances: %w", err)
	}
	out.Walk = true
	if edge != nil {
		last := len(out.Instances) - 1
		out.Next, out.Searched = new(int64(out.Instances[last].ID)), out.Instances[last].InsertedAt
		if !*edge {
			out.Instances = out.Instances[:last]
			if !p.Filter.Within.IsZero() {
				out.Next, out.Searched = new(p.blurred(*out.Next, out.Instances)), p.rounded(out.Searched)
			}
		}
	}
	if out.cut(p.Limit); len(out.Instances) == p.Limit {
		out.Searched = time.Time{}
	}
	return out, nil
}

// through returns the client whose settings allow what a lookup needs.
func (r *Reader) through(by lookup) *ent.Client {
	if by.bitmaps {
		return r.composer().bitmaps
	}
	return r.composer().client
}

// page reads the instances that a page selects, in its order, and its column edge.
func (r *Reader) page(ctx context.Context, from *ent.Client, p *ListParams, selects predicate.Instance, into *Listed) (edge *bool, err error) {
	order := instance.ByID(sql.OrderDesc())
	if p.OldestFirst {
		order = instance.ByID()
	}
	err = send(ctx, from.Instance.Query().Where(selects).Order(order), func(rows pgx.Rows) error {
		for rows.Next() {
			i, err := scan(rows, &edge)
			if err != nil {
				return err
			}
			into.Instances = append(into.Instances, i)
		}
		return rows.Err()
	})
	return edge, err
}

func (p *ListParams) span() span {
	out := span{after: math.MaxInt64, oldestFirst: p.OldestFirst, visit: p.Visit, along: along(&p.Filter)}
	if p.Time != 0 {
		out.seconds = new(p.Time.Seconds())
	}
	if !p.Filter.Within.IsZero() {
		out.least = 2 * p.blur() //nolint:mnd // so that the next page, which begins up to a blur earlier, gets on
	}
	switch {
	case p.After != nil:
		out.after = *p.After
	case p.OldestFirst:
		out.after = math.MinInt64
	}
	return out
}

// blurBy is how many ids one cursor of a list within bounds may stand for.
const blurBy = 1 << 10

// blur returns how many ids a cursor of this list may be moved over.
func (p *ListParams) blur() int { return max(1, min(blurBy, p.Visit/2)) } //nolint:mnd // half of them

// blurred returns where the page behind this one begins, for a list within bounds. The last row
// that the page has visited may lie outside, and a cursor would tell its id. So the place is moved
// back, over rows of which none is on this page: the next page visits them again. It is never moved
// over half of what a page visits, or pages would not get on.
func (p *ListParams) blurred(edge int64, shown []fsm.RawInstance) int64 {
	by := int64(p.blur())
	if p.OldestFirst {
		edge -= ((edge % by) + by) % by
		for i := range shown {
			edge = max(edge, int64(shown[i].ID))
		}
		return edge
	}
	edge += (by - ((edge%by)+by)%by) % by
	for i := range shown {
		edge = min(edge, int64(shown[i].ID))
	}
	return edge
}

// rounded hides the time of a row that may lie outside of the list's bounds: it returns the full
// minute up to which the page has left nothing out.
func (p *ListParams) rounded(at time.Time) time.Time {
	minute := at.Truncate(time.Minute)
	if p.OldestFirst || minute.Equal(at) {
		return minute
	}
	return minute.Add(time.Minute)
}

// cut removes the instance over the limit.
func (l *Listed) cut(limit int) {
	if len(l.Instances) > limit {
		l.Instances = l.Instances[:limit]
		l.Next = new(int64(l.Instances[limit-1].ID))
	}
}
