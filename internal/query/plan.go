package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/internal/store"
)

// planPage is the number of rows that one query of a plan visits: one long snapshot would keep
// VACUUM from the hot tables.
const planPage = 20_000

// Select lists, in ascending order, the ids of the instances that a filter selects and to which a
// verb applies. It returns a *store.TooManyError if they are more than most.
func (r *Reader) Select(ctx context.Context, v store.Verb, f *store.Filter, most int) ([]int64, error) {
	fits := append(Where(f), applies(v)...)
	var ids []int64
	var done bool
	var err error
	for _, by := range lookups(f) {
		if ids, done, err = r.selectByIndex(ctx, by, fits); err != nil || done {
			break
		}
	}
	for next := new(int64); err == nil && !done && len(ids) <= most; done = next == nil {
		next, err = choose(ctx, r.composer().client, r.ids(span{after: *next, oldestFirst: true, visit: planPage, along: along(f)}, fits), &ids)
	}
	if err == nil && len(ids) > most {
		err = &store.TooManyError{Most: most}
	}
	if err != nil {
		return nil, fmt.Errorf("select instances to %s: %w", v.Doing(), err)
	}
	slices.Sort(ids)
	return ids, nil
}

// selectByIndex selects by a lookup. all is true if ids are all that the filter selects.
func (r *Reader) selectByIndex(ctx context.Context, by lookup, fits []predicate.Instance) (ids []int64, all bool, err error) {
	many, err := choose(ctx, r.through(by), r.idsFound(planPage, by, fits), &ids)
	if err != nil || many != nil {
		return nil, false, err
	}
	return ids, true, nil
}

// choose adds the ids of the rows of a page that fit. last is the id of the last row that the page
// may visit, or nil if it did not come to that row.
func choose(ctx context.Context, from *ent.Client, page predicate.Instance, ids *[]int64) (last *int64, err error) {
	err = send(ctx, from.Instance.Query().Where(page), func(rows pgx.Rows) error {
		var id int64
		var fits, edge bool
		_, err := pgx.ForEachRow(rows, []any{&id, &fits, &edge}, func() error {
			if fits {
				*ids = append(*ids, id)
			}
			if edge {
				last = new(id)
			}
			return nil
		})
		return err
	})
	return last, err
}
