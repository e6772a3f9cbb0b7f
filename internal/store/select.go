package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// selectSQL lists instances that a filter selects and a verb applies to, page by page along the primary key: no index knows most of a
// filter, and a long snapshot would keep the hot tables from being vacuumed. $1–$10 filterText $11 after which id $12 most to visit in a
// page. The last row is the id to go on after, NULL at the end.
const selectSQL = `WITH page AS MATERIALIZED (
  SELECT g.id, coalesce(` + filterText + `, false) AND coalesce(` + appliesText + `, false) AS fits
  FROM {s}.gen_durable g WHERE g.id > $11::bigint ORDER BY g.id LIMIT $12)
SELECT id, false FROM page WHERE fits
UNION ALL
SELECT CASE WHEN count(*) = $12 THEN max(id) END, true FROM page`

// selectPage is how many rows one statement visits.
const selectPage = 20_000

// Select lists the ids, ascending, of the instances that a filter selects and a verb applies to; *TooManyError if they are over most.
func (s *Store) Select(ctx context.Context, v Verb, f *Filter, most int) ([]int64, error) {
	var ids []int64
	for after := int64(0); ; {
		var next *int64
		err := s.one(ctx, fastLock, "select", selectSQL, func(rows pgx.Rows) error {
			var id *int64
			var last bool
			_, err := pgx.ForEachRow(rows, []any{&id, &last}, func() error {
				if last {
					next = id
				} else {
					ids = append(ids, *id)
				}
				return nil
			})
			return err
		}, append(f.args(v), after, selectPage)...)
		switch {
		case err != nil:
			return nil, fmt.Errorf("select instances to %s: %w", v, err)
		case len(ids) > most:
			return nil, fmt.Errorf("select instances to %s: %w", v, &TooManyError{most})
		case next == nil:
			return ids, nil
		}
		after = *next
	}
}

const getManySQL = `SELECT ` + instanceColumns + ` FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[]) ORDER BY g.id`

// GetMany reads instances in order of ids; those that are gone are left out.
func (s *Store) GetMany(ctx context.Context, ids []int64) (found []*Instance, err error) {
	err = s.one(ctx, fastLock, "get many", getManySQL, func(rows pgx.Rows) error {
		for rows.Next() {
			i, err := scanInstance(rows)
			if err != nil {
				return err
			}
			found = append(found, i)
		}
		return rows.Err()
	}, ids)
	if err != nil {
		return nil, fmt.Errorf("get %d instances: %w", len(ids), err)
	}
	return found, nil
}
