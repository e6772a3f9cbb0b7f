package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// keptMostKeys bounds the keys of one page of a look at kept signals.
const keptMostKeys = 1000

// occupiedKeysSQL reads a page of the keys for which signals are kept. It returns how many these
// are, the last of them, and those that a live instance occupies. OFFSET 0 keeps the subquery from
// becoming a join over all instances. $1 the last key of the page before $2 limit
var occupiedKeysSQL = named("occupied keys", `WITH k AS MATERIALIZED (SELECT DISTINCT k.key FROM {s}.kept_signals k WHERE k.key > $1::text ORDER BY k.key LIMIT $2::bigint)
SELECT (SELECT count(*) FROM k), coalesce((SELECT max(key) FROM k), ''), ARRAY(
  SELECT k.key FROM k WHERE EXISTS (SELECT FROM {s}.gen_durable g WHERE g.correlation_guard = k.key AND g.status NOT IN ('done', 'failed') OFFSET 0))`)

// expireKeptSQL deletes kept signals that no instance took in time. One stays whose key a live
// instance occupies that was inserted in time: it is that instance's, and the next look delivers
// it. An instance that this snapshot does not see is not committed yet, and so is no occupant in
// time. $1 limit
var expireKeptSQL = named("expire kept", `WITH d AS (DELETE FROM {s}.kept_signals k WHERE k.id = ANY(ARRAY(
    SELECT x.id FROM {s}.kept_signals x WHERE x.expires_at <= (SELECT clock_timestamp())
      AND NOT EXISTS (SELECT FROM {s}.gen_durable g WHERE g.correlation_guard = x.key AND g.status NOT IN ('done', 'failed')
        AND g.inserted_at < x.expires_at OFFSET 0)
    ORDER BY x.expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))
  RETURNING k.id)
SELECT count(*) FROM d`)

// Handed reports what a look at kept signals did.
type Handed struct {
	Queues  []string  // of the instances that it woke, with repeats
	Refused []Refused // the keys whose signals or instances Postgres refuses to change
	Last    string    // the last key of a full page: there may be more behind it
}

// HandOver gives kept signals to instances that occupy their keys and have not taken them: of
// processes that did not know of any, of other languages, and those that an operator's Retry has
// made occupants again. It looks at a page of the keys behind one. It passes over instances and
// signals that another transaction has locked, so it is repeated as long as signals are kept.
func (s *Store) HandOver(ctx context.Context, after string) (out Handed, err error) {
	take := func(keys []string) error {
		var woken []string
		err := s.transaction(ctx, fastLock, s.stmt(takeKeptSQL, readQueues(&woken), keys))
		if err == nil {
			out.Queues = append(out.Queues, woken...)
		}
		return err
	}
	var n int
	var last string
	var keys []string
	read := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n, &last, &keys}, func() error { return nil })
		return err
	}
	if err := s.transaction(ctx, fastLock, s.stmt(occupiedKeysSQL, read, after, keptMostKeys)); err != nil {
		return out, fmt.Errorf("look for instances that have kept signals: %w", err)
	}
	if n == keptMostKeys {
		out.Last = last
	}
	if len(keys) == 0 {
		return out, nil
	}
	err = take(keys)
	if holdsUp(err) {
		out.Refused, err = narrow(keys, take, func(key string, err error) Refused { return Refused{Key: key, Err: err} })
	}
	if err != nil {
		return out, fmt.Errorf("deliver kept signals: %w", err)
	}
	return out, nil
}

// expireKept deletes what has expired.
func (s *Store) expireKept(ctx context.Context, p PruneParams, sum *Pruned) error {
	for gone := p.Limit; gone == p.Limit; sum.Expired += gone {
		read := func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&gone}, func() error { return nil })
			return err
		}
		if err := s.sweep(ctx, p, s.stmt(expireKeptSQL, read, p.Limit)); err != nil {
			return err
		}
	}
	return nil
}
