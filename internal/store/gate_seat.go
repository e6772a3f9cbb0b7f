package store

import (
	"github.com/jackc/pgx/v5"
)

// The gate of a queue bounds what claims take from it, from the front and from the lines together.
// No row needs to wait in line for it: a claim that finds no free seat claims nothing.

// seatsSQL finds the numbers of the free seats of a queue, for the claim whose statements follow. A
// gate without places has as many as its rate leaves, without numbers. It returns in how many µs
// there are more, and whether all places are taken.
//
// It runs under the gate's lock (see lockGatesSQL), with a later snapshot. A claim without the
// lock, or one that cannot lock the row that has the debt, has no seat. Nor has one whose paySQL
// would wait for another transaction that is about to insert that row: see claimPaid.
//
// $1 queue $2 most seats
var seatsSQL = named("seats", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
r AS MATERIALIZED (SELECT r.*, r.name = ANY(current_setting('gendurable.gates')::text[]) AS mine
  FROM {s}.gates r WHERE r.queue = $1 AND `+seatText+` ORDER BY r.name COLLATE "C" LIMIT 1),
n AS MATERIALIZED (
  SELECT r.*, h.taken, d.debt, e.closed_until, e.pace, e.at, CASE WHEN NOT r.mine OR e.closed_until > c.now OR e.key IS NOT NULL AND b.at IS NULL
      OR r.rate IS NOT NULL AND e.key IS NULL AND r.name = ANY(`+unpaidText+`) THEN 0
    ELSE greatest(0, least($2::int, r.places - cardinality(h.taken), floor(r.rate_burst - d.debt))) END::int AS free, c.now
  FROM c CROSS JOIN r CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT g.seat FROM {s}.gen_durable g WHERE g.queue = $1 AND g.seat IS NOT NULL) AS taken OFFSET 0) h
  LEFT JOIN {s}.gate_keys e ON e.key = r.name
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace FROM {s}.gate_keys b WHERE b.key = r.name FOR NO KEY UPDATE OF b SKIP LOCKED) b ON true
  LEFT JOIN LATERAL (SELECT `+debtOf("r.rate", "r.rate_per", "r.rate_burst", "r.updated_at")+` AS debt OFFSET 0) d ON r.rate IS NOT NULL)
SELECT length(set_config('gendurable.seats', CASE WHEN n.places IS NULL THEN array_fill(NULL::int, ARRAY[n.free])
    ELSE ARRAY(SELECT f.n FROM (SELECT generate_series(1, least(n.places, cardinality(n.taken) + n.free)) EXCEPT SELECT unnest(n.taken)) f(n)
      ORDER BY f.n LIMIT n.free) END::text, false)),
  CASE WHEN n.closed_until > n.now THEN (date_part('epoch', n.closed_until - n.now) * 1000000)::bigint
    WHEN n.debt + 1 > n.rate_burst THEN `+paidIn("n.debt + 1 - n.rate_burst", "n.rate", "n.rate_per", "coalesce(n.pace, 1)")+` END,
  coalesce(cardinality(n.taken) >= n.places, false), coalesce(n.at > n.now, false)
FROM n`)

// paySQL adds what a claim has taken to the debt of its queue's gate. seatsSQL has locked the row,
// if there is one. $1 queue
var paySQL = named("pay", `WITH c AS MATERIALIZED (
  SELECT clock_timestamp() AS now, cardinality(current_setting('gendurable.claimed')::bigint[]) AS count),
r AS MATERIALIZED (SELECT r.* FROM {s}.gates r WHERE r.queue = $1 AND `+seatText+` ORDER BY r.name COLLATE "C" LIMIT 1)
INSERT INTO {s}.gate_keys AS o (key, debt, at, pace)
SELECT r.name, least(1e12, `+debtOf("r.rate", "r.rate_per", "r.rate_burst", "r.updated_at")+` + c.count), c.now, coalesce(`+paceOf("r.rate_per")+`, 1)
FROM c CROSS JOIN r LEFT JOIN {s}.gate_keys b ON b.key = r.name WHERE r.rate IS NOT NULL AND c.count > 0
ON CONFLICT (key) DO UPDATE SET debt = excluded.debt, at = excluded.at, pace = CASE WHEN o.debt = 0 THEN o.pace ELSE excluded.pace END`)

// readSeats reads the one row of seatsSQL.
func (c *Claimed) readSeats(rows pgx.Rows) error {
	var wait *int64
	var crowded, ahead bool
	_, err := pgx.ForEachRow(rows, []any{nil, &wait, &crowded, &ahead}, func() error {
		c.soon(wait)
		c.Crowded, c.Ahead = c.Crowded || crowded, c.Ahead || ahead
		return nil
	})
	return err
}
