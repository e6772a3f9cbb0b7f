package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// pruneWindowsSQL deletes windows that have closed, of a page in the order of names. It keeps a
// debounce whose instance still waits, however late: the next spec has to replace it. Under the
// lock Postgres looks at the newest version of a window, but at instances as of the snapshot
// before. A window that was opened anew in between closes after that snapshot, so the minute keeps
// it.
//
// $1 the last name of the page before $2 the sweepers' lock $3 limit
var pruneWindowsSQL = named("prune windows", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($2::bigint) AS alone),
p AS MATERIALIZED (SELECT w.name FROM {s}.windows w WHERE (SELECT alone FROM c) AND w.name > $1::text ORDER BY w.name LIMIT $3::bigint),
l AS MATERIALIZED (
  SELECT w.name FROM {s}.windows w WHERE w.name = ANY(ARRAY(SELECT p.name FROM p)) AND w.until < (SELECT now FROM c) - interval '1 minute'
    AND NOT (w.name LIKE 'debounce:%' AND EXISTS (SELECT FROM {s}.gen_durable g WHERE g.id = w.instance AND `+waitsText+` OFFSET 0))
  ORDER BY w.name FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM {s}.windows w WHERE w.name = ANY(ARRAY(SELECT l.name FROM l)) RETURNING w.name)
SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM p), coalesce((SELECT max(p.name) FROM p), '')`)

func (s *Store) pruneWindows(ctx context.Context, p PruneParams, sum *Pruned) error {
	after := ""
	for seen := p.Limit; seen == p.Limit; {
		var gone int
		read := func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&gone, &seen, &after}, func() error { return nil })
			return err
		}
		if err := s.sweep(ctx, p, s.stmt(pruneWindowsSQL, read, after, s.sweepers(), p.Limit)); err != nil {
			return err
		}
		sum.Windows += gone
	}
	return nil
}
