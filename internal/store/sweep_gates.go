package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// pruneGateKeysSQL deletes the rows of gate_keys that say no more than no row does, of a page in
// the order of keys: without a weight, places, a debt that is left, a pace that is lowered, or a
// time until which it is closed. It keeps what was used in the last ten minutes, so that busy keys
// are not deleted and inserted in turn. Settings by operators stay, also when their gate is gone.
//
// Each change of such a row locks it. A claim keeps that lock until it has paid, and a throttle or
// a verb until it has committed. So no other transaction has a row that is locked here, without
// waiting; and the condition is checked again on it: a row that was changed since the snapshot
// stays. After the lock:
//
//   - A claim whose snapshot has the row, and that cannot lock it any more, passes the key over
//     once: it begins nothing that it could not pay for. The next claim sees no row, and no debt.
//   - A throttle or a verb meets the row in its INSERT, waits for this transaction, and inserts
//     the row anew.
//
// $1 the last key of the page before $2 the sweepers' lock $3 limit
var pruneGateKeysSQL = named("prune gate keys", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($2::bigint) AS alone),
p AS MATERIALIZED (SELECT b.key FROM {s}.gate_keys b WHERE (SELECT alone FROM c) AND b.key > $1::text ORDER BY b.key LIMIT $3::bigint),
l AS MATERIALIZED (
  SELECT b.key FROM {s}.gate_keys b CROSS JOIN c LEFT JOIN LATERAL (
    SELECT CASE WHEN r.label IS NOT NULL AND b.key = r.name THEN r.total_rate ELSE r.rate END AS n,
      CASE WHEN r.label IS NOT NULL AND b.key = r.name THEN r.total_rate_per ELSE r.rate_per END AS per,
      CASE WHEN r.label IS NOT NULL AND b.key = r.name THEN r.total_rate_burst ELSE r.rate_burst END AS burst, r.updated_at
    FROM {s}.gates r WHERE r.name = split_part(b.key, '/', 1)) r ON true
  WHERE b.key = ANY(ARRAY(SELECT p.key FROM p)) AND b.weight = 1 AND b.places IS NULL AND b.at < c.now - interval '10 minutes'
    AND coalesce(b.closed_until < c.now - interval '1 minute', true) AND (r.n IS NULL OR `+debtOf("r.n", "r.per", "r.burst", "r.updated_at")+` = 0 AND `+paceOf("r.per")+` = 1)
  ORDER BY b.key FOR UPDATE OF b SKIP LOCKED),
d AS (DELETE FROM {s}.gate_keys b WHERE b.key = ANY(ARRAY(SELECT l.key FROM l)) RETURNING b.key)
SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM p), coalesce((SELECT max(p.key) FROM p), '')`)

func (s *Store) pruneGateKeys(ctx context.Context, p PruneParams, sum *Pruned) error {
	after := ""
	for seen := p.Limit; seen == p.Limit; {
		var gone int
		read := func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&gone, &seen, &after}, func() error { return nil })
			return err
		}
		if err := s.sweep(ctx, p, s.stmt(pruneGateKeysSQL, read, after, s.sweepers(), p.Limit)); err != nil {
			return err
		}
		sum.GateKeys += gone
	}
	return nil
}
