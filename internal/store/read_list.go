package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
)

// listSQL visits instances along the primary key and reads those that a filter selects. It stops at
// the limit, or at the last row that it may visit. It reads that row, too, since the next page
// begins after its id. The inner statement carries ids only, so that nothing large goes through the
// window.
//
// $1–$13 filterText $14 beyond which id $15 most to visit $16 limit
func listSQL(beyond, order string) string {
	return `SELECT w.visited, w.fits, i.* FROM (
  SELECT g.id, coalesce(` + filterText + `, false) AS fits, row_number() OVER (ORDER BY g.id` + order + `) AS visited
  FROM {s}.gen_durable g WHERE g.id ` + beyond + ` $14::bigint ORDER BY g.id` + order + ` LIMIT $15::int) w
CROSS JOIN LATERAL (SELECT ` + instanceColumns + ` FROM {s}.gen_durable g WHERE g.id = w.id OFFSET 0) i
WHERE w.fits OR w.visited = $15
ORDER BY w.id` + order + ` LIMIT $16::int`
}

// listByIndexSQL reads the same page of the rows that an index finds, unless these are $15 or more.
// Its first column is their number, in at least one row.
func listByIndexSQL(index, beyond, order string) string {
	return `WITH found AS MATERIALIZED (
  SELECT g.id, coalesce(` + filterText + `, false) AND g.id ` + beyond + ` $14::bigint AS fits
  FROM {s}.gen_durable g WHERE ` + index + ` LIMIT $15::int)
SELECT n.visited, i.id IS NOT NULL, i.* FROM (SELECT count(*) AS visited FROM found) n
LEFT JOIN LATERAL (
  SELECT r.* FROM (SELECT s.id FROM found s WHERE s.fits AND n.visited < $15 ORDER BY s.id` + order + ` LIMIT $16::int) p
  CROSS JOIN LATERAL (SELECT ` + instanceColumns + ` FROM {s}.gen_durable g WHERE g.id = p.id OFFSET 0) r) i ON true`
}

// ListParams selects the page to read.
type ListParams struct {
	Filter      Filter
	OldestFirst bool
	After       *int64 // the id that ended the page before; nil: there was none
	Limit       int
	Visit       int  // most rows to visit
	Walk        bool // do not use the indexes, which are known to find too many rows
}

// Listed is a page of instances.
type Listed struct {
	Instances []*Instance
	Next      *int64 // the id that ended this page; nil: there are no more
	Walk      bool   // ListParams.Walk for the following pages
}

// List reads a page of the instances that a filter selects, in order of ids. It uses the index of a
// criterion if that finds few rows, and otherwise walks along the primary key. A page may be short
// or empty, and still have a next one.
func (s *Store) List(ctx context.Context, p ListParams) (out Listed, err error) {
	if index := p.Filter.index(); index != "" && !p.Walk {
		few, err := s.listByIndex(ctx, &p, index, &out)
		if err != nil {
			return Listed{}, fmt.Errorf("list instances by an index: %w", err)
		}
		if few {
			return out, nil
		}
	}
	if err := s.walk(ctx, &p, &out); err != nil {
		return Listed{}, fmt.Errorf("list instances: %w", err)
	}
	return out, nil
}

func (s *Store) listByIndex(ctx context.Context, p *ListParams, index string, out *Listed) (few bool, err error) {
	var visited int64
	beyond, order := p.direction()
	err = s.transaction(ctx, fastLock, s.stmt("bitmaps", bitmapsSQL, nil),
		s.stmt("list by index", listByIndexSQL(index, beyond, order), readListed(&visited, func(i *Instance, _ bool) {
			out.Instances = append(out.Instances, i)
		}), p.args()...))
	if err != nil || visited == int64(p.Visit) {
		return false, err
	}
	slices.SortFunc(out.Instances, func(a, b *Instance) int { // SQL promises no order across a join
		if p.OldestFirst {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.ID, a.ID)
	})
	out.cut(p.Limit)
	return true, nil
}

func (s *Store) walk(ctx context.Context, p *ListParams, out *Listed) error {
	out.Walk = true
	var visited int64
	var last int64
	beyond, order := p.direction()
	err := s.one(ctx, fastLock, "list", listSQL(beyond, order), readListed(&visited, func(i *Instance, fits bool) {
		if last = i.ID; fits {
			out.Instances = append(out.Instances, i)
		}
	}), p.args()...)
	if err != nil {
		return err
	}
	if visited == int64(p.Visit) {
		out.Next = &last
	}
	out.cut(p.Limit)
	return nil
}

func (p *ListParams) direction() (beyond, order string) {
	if p.OldestFirst {
		return ">", ""
	}
	return "<", " DESC"
}

// args returns the statement's arguments. It asks for one instance over the limit, whose presence
// shows that there is a next page.
func (p *ListParams) args() []any {
	beyond := int64(math.MaxInt64)
	switch {
	case p.After != nil:
		beyond = *p.After
	case p.OldestFirst:
		beyond = math.MinInt64
	}
	return append(p.Filter.args(), beyond, p.Visit, p.Limit+1)
}

// cut removes the instance over the limit.
func (l *Listed) cut(limit int) {
	if len(l.Instances) > limit {
		l.Instances = l.Instances[:limit]
		l.Next = &l.Instances[limit-1].ID
	}
}

// readListed reads instances. Before each, a row has the number of visited rows, and whether the
// instance fits.
func readListed(visited *int64, each func(i *Instance, fits bool)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if rows.RawValues()[2] == nil { // no instance, only the number of visited rows
				if err := rows.Scan(append([]any{visited}, make([]any, len(rows.RawValues())-1)...)...); err != nil {
					return err
				}
				continue
			}
			var fits bool
			i, err := scanInstance(rows, visited, &fits)
			if err != nil {
				return err
			}
			each(i, fits)
		}
		return rows.Err()
	}
}
