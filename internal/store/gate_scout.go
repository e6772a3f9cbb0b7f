package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ownPlacesText is the number of key k's own places.
const ownPlacesText = `(SELECT b.places FROM {s}.gate_keys b WHERE b.key = k.k)`

// scoutSQL looks at the keys of a queue's lines, in the order of bytes, and tells which of them
// cannot begin: no place is free, the key is closed, or it owes more than lets one begin. It
// decides as lineSQL does, but locks nothing, and knows nothing of what all keys of a gate share.
//
//   - seen: the first so many entries of the index. That is the cheapest way to the keys if each
//     has few rows in line. next: a loose index scan, if each has many.
//   - known: the keys, the places that are taken of each, and what else is known of it. x has them
//     by key: by a GROUP BY, whose plan is right for any number of keys. A join's may not be.
//   - x: whether the key is blocked, and in how many µs its time comes. A key at which another
//     queue is in line never is: see rivalsText. If a place is missing, no time helps.
//   - y: island counts the keys before it that are not blocked, so it is the same in a run.
//
// It returns the number of keys; the last of them; the number of entries of the index that it has
// read, if it has; how many keys are blocked; the runs of blocked keys, each with its gate, its
// first and last key, their number among all keys, and their count; the blocked keys whose time
// comes within $5; and the newest id.
//
// $1 queue $2 where to begin $3 most entries, or keys $4 whether to read the entries $5 µs
var scoutSQL = named("scout", `WITH RECURSIVE c AS MATERIALIZED (SELECT clock_timestamp() AS now),
`+lineLook{yields: `true`}.rivalsText()+`,
r AS MATERIALIZED (SELECT r.name, r.queue, r.run, coalesce(r.places, r.total) AS places, r.rate, r.rate_per, r.rate_burst, r.updated_at FROM {s}.gates r),
seen AS MATERIALIZED (SELECT g.gate AS k FROM {s}.gen_durable g WHERE g.queue = $1 AND `+inLine+` AND g.gate ~>=~ $2::text AND $4::bool
  ORDER BY g.queue, g.gate USING ~<~ LIMIT $3::int),
next(k, n) AS (
  SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND `+inLine+` AND g.gate ~>=~ $2::text ORDER BY g.queue, g.gate USING ~<~ LIMIT 1), 1 WHERE NOT $4::bool
  UNION ALL SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND `+inLine+` AND g.gate ~>=~ (x.k || chr(1)) ORDER BY g.queue, g.gate USING ~<~ LIMIT 1), x.n + 1
  FROM next x WHERE x.k IS NOT NULL AND x.n < $3::int),
keys AS MATERIALIZED (SELECT DISTINCT s.k FROM seen s UNION ALL SELECT x.k FROM next x WHERE x.k IS NOT NULL),
known AS MATERIALIZED (
  SELECT k.k, 0 AS held, NULL::timestamptz AS closed_until, NULL::float8 AS debt, NULL::timestamptz AS at, NULL::float8 AS pace, NULL::int AS places FROM keys k
  UNION ALL SELECT g.gate, 1, NULL, NULL, NULL, NULL, NULL FROM {s}.gen_durable g
  WHERE g.place IS NOT NULL AND g.gate = ANY(ARRAY(SELECT k.k FROM keys k JOIN r ON r.name = split_part(k.k, '/', 1) WHERE NOT r.run AND coalesce(r.places, `+ownPlacesText+`) IS NOT NULL))
  UNION ALL SELECT g.run_gate, 1, NULL, NULL, NULL, NULL, NULL FROM {s}.gen_durable g
  WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL AND g.run_gate = ANY(ARRAY(SELECT k.k FROM keys k JOIN r ON r.name = split_part(k.k, '/', 1) WHERE r.run AND coalesce(r.places, `+ownPlacesText+`) IS NOT NULL))
  UNION ALL SELECT b.key, 0, b.closed_until, b.debt, b.at, b.pace, b.places FROM {s}.gate_keys b WHERE b.key = ANY(ARRAY(SELECT k.k FROM keys k))),
x AS MATERIALIZED (
  SELECT z.k, z.name, CASE WHEN z.full THEN NULL ELSE z.wait END AS wait, (z.full OR z.wait > 0) AND CASE WHEN z.shared AND (SELECT count(*) FROM rival) > 0 THEN NOT EXISTS (
    SELECT FROM rival q WHERE (SELECT g.id FROM {s}.gen_durable g WHERE g.queue = q.queue AND `+inLine+` AND g.gate = z.k `+lineOrder+` LIMIT 1) IS NOT NULL) ELSE true END AS blocked
  FROM (
    SELECT d.k, d.name, d.shared, d.full, greatest(0, CASE WHEN d.closed_until > d.now THEN (date_part('epoch', d.closed_until - d.now) * 1000000)::bigint END,
      CASE WHEN d.debt + 1 > d.rate_burst THEN `+paidIn("d.debt + 1 - d.rate_burst", "d.rate", "d.rate_per", "coalesce(d.pace, 1)")+` END) AS wait
    FROM (
      SELECT b.k, r.name, r.queue IS NULL AS shared, coalesce(b.held >= `+placesText+`, false) AS full, b.closed_until, b.pace, r.rate, r.rate_per, r.rate_burst, c.now,
        CASE WHEN r.rate IS NOT NULL THEN `+debtOf("r.rate", "r.rate_per", "r.rate_burst", "r.updated_at")+` END AS debt
      FROM (SELECT u.k, sum(u.held) AS held, max(u.closed_until) AS closed_until, max(u.debt) AS debt, max(u.at) AS at, max(u.pace) AS pace, max(u.places) AS places FROM known u GROUP BY u.k) b
      CROSS JOIN c JOIN r ON r.name = split_part(b.k, '/', 1)) d) z),
y AS MATERIALIZED (SELECT x.*, row_number() OVER w AS n, count(*) FILTER (WHERE NOT x.blocked) OVER w AS island FROM x WINDOW w AS (ORDER BY x.k USING ~<~)),
run AS MATERIALIZED (
  SELECT y.name, (array_agg(y.k ORDER BY y.n))[1] AS lo, (array_agg(y.k ORDER BY y.n DESC))[1] AS hi, min(y.n)::int AS n, count(*)::int AS size FROM y WHERE y.blocked GROUP BY y.name, y.island),
due AS MATERIALIZED (SELECT y.k, y.wait FROM y WHERE y.blocked AND y.wait <= $5::bigint)
SELECT (SELECT count(*) FROM keys), (SELECT k.k FROM keys k ORDER BY k.k USING ~>~ LIMIT 1), (SELECT count(*) FROM seen), (SELECT count(*) FROM y WHERE y.blocked), (SELECT count(*) FROM y),
  ARRAY(SELECT r.lo FROM run r ORDER BY r.n), ARRAY(SELECT r.hi FROM run r ORDER BY r.n), ARRAY(SELECT r.n FROM run r ORDER BY r.n), ARRAY(SELECT r.size FROM run r ORDER BY r.n),
  ARRAY(SELECT d.k FROM due d ORDER BY d.k), ARRAY(SELECT d.wait FROM due d ORDER BY d.k),
  (SELECT coalesce((SELECT n.id FROM {s}.gen_durable n ORDER BY n.id DESC LIMIT 1), 0))`)

// KeyRun is a run of consecutive keys that are blocked.
type KeyRun struct {
	First, Last string
	Keys        int
}

// Scouted is what a look at a slice of the lines has found.
type Scouted struct {
	Runs    []KeyRun     // in the order of bytes
	Opens   bool         // the first key of the slice is blocked
	Ends    bool         // the last one is
	Due     []BlockedKey // those whose time comes soon
	Keys    int
	Blocked int
	Newest  int64  // the greatest id
	Next    string // where the next slice begins; empty: there is none
	Sparse  bool   // keys have so many rows in line that the next slice had better not read them all
}

// scoutSparse is how many entries of the index a key has if it is cheaper to jump to the next one.
const scoutSparse = 10

// Scout looks at the keys in line of a queue from one on, and tells which cannot begin. most bounds
// how many rows in line it reads, or how many keys, if these are sparse. soon is for how long it
// tells when the time of a key comes.
func (s *Store) Scout(ctx context.Context, queue, from string, most int, sparse bool, soon time.Duration) (out Scouted, err error) {
	var last *string
	var entries, known int
	var firsts, lasts, keys []string
	var at, sizes []int
	var waits []int64
	err = s.one(ctx, fastLock, scoutSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&out.Keys, &last, &entries, &out.Blocked, &known, &firsts, &lasts, &at, &sizes, &keys, &waits, &out.Newest}, func() error { return nil })
		return err
	}, queue, from, most, !sparse, micros(soon))
	if err != nil {
		return out, fmt.Errorf("read the lines at the gates of queue %q: %w", queue, err)
	}
	for i := range firsts {
		out.Runs = append(out.Runs, KeyRun{firsts[i], lasts[i], sizes[i]})
		out.Opens = out.Opens || at[i] == 1 && known == out.Keys
		out.Ends = out.Ends || at[i]+sizes[i]-1 == known && known == out.Keys
	}
	for i, key := range keys {
		out.Due = append(out.Due, BlockedKey{key, &waits[i]})
	}
	switch {
	case sparse:
		out.Sparse = true
		if out.Keys >= most {
			out.Next = AfterKey(*last)
		}
	case entries >= most:
		out.Next, out.Sparse = AfterKey(*last), out.Keys*scoutSparse < entries
	}
	return out, nil
}

// AfterKey returns the text behind a key in the order of bytes: no key is between them.
func AfterKey(key string) string { return key + "\x01" }
