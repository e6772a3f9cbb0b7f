package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// selectSQL lists instances that a filter selects and to which a verb applies, page by page along
// the primary key. No index knows most criteria of a filter, and one long snapshot would keep
// VACUUM from the hot tables. The last row is the id after which to continue, or NULL at the end.
//
// $1–$16 filterText and appliesText $17 after which id $18 most rows to visit in a page
const selectSQL = `WITH page AS MATERIALIZED (
  SELECT g.id, coalesce(` + filterText + `, false) AND coalesce(` + appliesText + `, false) AS fits
  FROM {s}.gen_durable g WHERE g.id > $17::bigint ORDER BY g.id LIMIT $18::int)
SELECT id, false FROM page WHERE fits
UNION ALL
SELECT CASE WHEN count(*) = $18 THEN max(id) END, true FROM page`

// selectByIndexSQL selects in the same way among the rows that an index finds, unless these are $17
// or more. The last row is their number.
func selectByIndexSQL(index string) string {
	return `WITH found AS MATERIALIZED (
  SELECT g.id, coalesce(` + filterText + `, false) AND coalesce(` + appliesText + `, false) AS fits
  FROM {s}.gen_durable g WHERE ` + index + ` LIMIT $17::int)
SELECT id, false FROM found WHERE fits AND (SELECT count(*) FROM found) < $17
UNION ALL
SELECT count(*), true FROM found`
}

// selectPage is the number of rows that one statement visits.
const selectPage = 20_000

// Select lists, in ascending order, the ids of the instances that a filter selects and to which a
// verb applies. It returns a *TooManyError if they are more than most.
func (s *Store) Select(ctx context.Context, v Verb, f *Filter, most int) ([]int64, error) {
	ids, done, err := s.selectByIndex(ctx, v, f)
	for after := int64(0); err == nil && !done && len(ids) <= most; {
		var next *int64
		err = s.one(ctx, fastLock, "select", selectSQL, readSelected(&ids, &next), append(f.operable(v), after, selectPage)...)
		if done = next == nil; !done {
			after = *next
		}
	}
	if err == nil && len(ids) > most {
		err = &TooManyError{most}
	}
	if err != nil {
		return nil, fmt.Errorf("select instances to %s: %w", v, err)
	}
	return ids, nil
}

// selectByIndex selects by an index. all is true if ids are all that the filter selects.
func (s *Store) selectByIndex(ctx context.Context, v Verb, f *Filter) (ids []int64, all bool, err error) {
	index := f.index()
	if index == "" {
		return nil, false, nil
	}
	var visited *int64
	err = s.transaction(ctx, fastLock, s.stmt("bitmaps", bitmapsSQL, nil),
		s.stmt("select by index", selectByIndexSQL(index), readSelected(&ids, &visited), append(f.operable(v), selectPage)...))
	if err != nil || *visited == selectPage {
		return nil, false, err
	}
	slices.Sort(ids)
	return ids, true, nil
}

// readSelected reads ids, and the value of the last row.
func readSelected(ids *[]int64, last **int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id *int64
		var isLast bool
		_, err := pgx.ForEachRow(rows, []any{&id, &isLast}, func() error {
			if isLast {
				*last = id
			} else {
				*ids = append(*ids, *id)
			}
			return nil
		})
		return err
	}
}

const getManySQL = `SELECT ` + instanceColumns + ` FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[]) ORDER BY g.id`

// GetMany reads instances in order of ids. It leaves out ids of instances that do not exist.
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
