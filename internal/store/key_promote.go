package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// promoteSQL brings a key's next row forward: in each queue of the key the head, if it waits in
// lane key. It runs after every statement that ends a keyed claim or takes a runnable keyed row
// away, in the same transaction, but as a later statement, so that its snapshot contains the row's
// change. It reads clock_timestamp() once: with an earlier clock it would pass over a head that
// came due since the statement was sent.
//
// It skips and reports a locked head, and never waits for it. The caller must go on with
// settleSQL, since otherwise the key stands still. It returns key, queue, and whether the head was
// brought forward.
//
// $1 keys $2 NULL, or per key the instance whose claim ended $3 the mark which that instance must
// bear, since a stale outcome has ended nothing.
var promoteSQL = named("promote", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
h AS MATERIALIZED (
  SELECT k.k, q.q, n.id FROM (
    SELECT DISTINCT u.k FROM unnest($1::text[], $2::bigint[]) AS u(k, id)
    WHERE u.id IS NULL OR (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = u.id) = $3::uuid) k
  CROSS JOIN LATERAL `+queuesOf("k.k")+` q
  CROSS JOIN LATERAL `+headOf("k.k", "q.q", "(SELECT now FROM c)")+` n
  WHERE n.pick_lane = {lane key}),
l AS MATERIALIZED (
  SELECT g.id FROM {s}.gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM h)) AND g.pick_lane = {lane key} AND g.status = 'runnable'
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
u AS (UPDATE {s}.gen_durable g SET pick_lane = {lane front} FROM l WHERE g.id = l.id RETURNING g.id)
SELECT h.k, h.q, u.id IS NOT NULL FROM h LEFT JOIN u ON u.id = h.id`)

// Promotion reports what happened to the heads of some partition keys.
type Promotion struct {
	Queues []string // queues in which a row came forward, worth a nudge
	Missed []string // keys of which someone had a row locked, to Promote soon
	// Refused are rows that Postgres refuses to change, and keys whose next row it refuses to change.
	// Such a key is not in Missed: the sweep of the keys finds it again.
	Refused []Refused
	Rest    bool // a parent was woken whose join cancels the rest: worth a CancelRest
	Skips   bool // a node is to be skipped: worth a Skip
}

func (p *Promotion) add(o Promotion) {
	p.Rest, p.Skips = p.Rest || o.Rest, p.Skips || o.Skips
	p.Queues, p.Missed, p.Refused = append(p.Queues, o.Queues...), append(p.Missed, o.Missed...), append(p.Refused, o.Refused...)
}

func (p *Promotion) read(rows pgx.Rows) error {
	for rows.Next() {
		var key string
		var queue *string
		var ok bool
		if err := rows.Scan(&key, &queue, &ok); err != nil {
			return err
		}
		if ok {
			p.Queues = append(p.Queues, value(queue))
		} else {
			p.Missed = append(p.Missed, key)
		}
	}
	return rows.Err()
}

// settleSQL makes sure that partition keys go on that no transaction has to promote. Either the
// head of such a key was locked when promoteSQL should have brought it forward, or claimSQL has
// moved a row of it to lane key behind a locked anchor. Call the transaction that left the key
// like that the mover. settleSQL runs in a transaction that begins after the mover's commit, and
// again until nothing of the key is locked any more:
//
//   - Some row executes the key. If that row can be locked and still executes, no transaction has
//     begun to end the claim. The transaction that ends it must lock the row first, and promotes
//     the key by a later statement. The snapshot of that statement is later than this one's, and so
//     than the mover's commit: it sees the rows that the mover has left. The key is settled. If the
//     row cannot be locked, the end of its claim may be under way with a promotion that has already
//     passed and saw nothing: again.
//   - No row executes the key, and a head is in lane key: it comes forward. If it is locked: again.
//   - No row executes the key, and a head is in front. If it can be locked and is unchanged, then a
//     claim or another verb that takes it away from the front comes later, and has to promote the
//     key as above: by its own promotion, or as another mover. If the head is locked, that may be
//     by a verb (a pause, a deadline) whose promotion has already passed: again.
//
// Several processes may settle one key at a time: each that meets the other's lock does so again.
// If a process dies that has to settle a key, the key may stand still with its head in lane key
// until sweepSQL finds it. None of this can break the order of a key, since a lane is a hint.
//
// It returns key, queue or NULL, and whether the key is settled; it returns no row for a key that
// is executed and settled. $1 keys
var settleSQL = named("settle", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
k AS MATERIALIZED (
  SELECT k.k, b.id FROM (SELECT DISTINCT unnest($1::text[]) AS k) k
  LEFT JOIN LATERAL (SELECT g.id FROM {s}.gen_durable g WHERE g.partition_key = k.k AND g.status = 'executing' LIMIT 1) b ON true),
busy AS MATERIALIZED (
  SELECT g.id FROM {s}.gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM k WHERE id IS NOT NULL)) AND coalesce(g.status = 'executing', false)
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
h AS MATERIALIZED (
  SELECT k.k, q.q, n.id FROM k CROSS JOIN LATERAL `+queuesOf("k.k")+` q
  CROSS JOIN LATERAL `+headOf("k.k", "q.q", "(SELECT now FROM c)")+` n WHERE k.id IS NULL),
l AS MATERIALIZED (
  SELECT g.id, g.pick_lane FROM {s}.gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM h)) AND coalesce(g.status = 'runnable', false) AND NOT g.paused
    AND g.eligible_at <= (SELECT now FROM c)
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
u AS (UPDATE {s}.gen_durable g SET pick_lane = {lane front} FROM l WHERE g.id = l.id AND l.pick_lane = {lane key})
SELECT h.k, h.q, l.id IS NOT NULL FROM h LEFT JOIN l ON l.id = h.id
UNION ALL SELECT k.k, NULL, false FROM k WHERE k.id IS NOT NULL AND k.id NOT IN (SELECT id FROM busy)`)

// Promote brings the next row of each key forward, unless it is in front already, or some row
// executes the key. The engine's transactions do the same for the keys that they free. Promote is
// for keys that they report in Missed, or claims in Unsettled, until it no longer reports them in
// Missed. A key whose next row Postgres refuses to change does not affect the others.
func (s *Store) Promote(ctx context.Context, keys []string) (p Promotion, err error) {
	settle := func(keys []string) error {
		var one Promotion
		if err := s.one(ctx, fastLock, settleSQL, one.read, keys); err != nil {
			return fmt.Errorf("make the next instances of %d partition keys runnable: %w", len(keys), err)
		}
		p.add(one)
		return nil
	}
	if err = settle(keys); blames(err) {
		p.Refused, err = narrow(keys, settle, func(key string, err error) Refused { return Refused{Key: key, Err: err} })
	}
	return p, err
}

// sweepSQL lists partition keys after $1 whose head waits in lane key although no row executes the
// key: a process died between missing a promotion and repeating it, foreign SQL changed a row, or
// the server's clock was set back. $1 key, $2 the most keys to visit.
var sweepSQL = named("sweep", `WITH RECURSIVE keys(k) AS (
  (SELECT g.partition_key FROM {s}.gen_durable g
   WHERE g.status = 'runnable' AND NOT g.paused AND g.partition_key > $1 ORDER BY g.partition_key LIMIT 1)
  UNION ALL
  SELECT (SELECT g.partition_key FROM {s}.gen_durable g
    WHERE g.status = 'runnable' AND NOT g.paused AND g.partition_key > keys.k ORDER BY g.partition_key LIMIT 1)
  FROM keys WHERE keys.k IS NOT NULL),
slice AS MATERIALIZED (SELECT k FROM keys WHERE k IS NOT NULL LIMIT $2)
SELECT s.k, b.id IS NULL AND EXISTS (
    SELECT 1 FROM (SELECT DISTINCT g.queue FROM {s}.gen_durable g WHERE g.partition_key = s.k AND g.status = 'runnable' AND NOT g.paused
      AND g.pick_lane = {lane key}) q
    CROSS JOIN LATERAL `+headOf("s.k", "q.queue", "statement_timestamp()")+` n WHERE n.pick_lane = {lane key})
FROM slice s
LEFT JOIN LATERAL (SELECT g.id FROM {s}.gen_durable g WHERE g.partition_key = s.k AND g.status = 'executing' LIMIT 1) b ON true
ORDER BY s.k`)

// Sweep visits up to limit partition keys after the given one and promotes those that stand still.
// It returns the last key it visited, or "" at the end. It is a safety net: the engine's own
// statements leave nothing for it. If own is given, it also deletes the notes of lost claims of
// which nothing runs any more.
func (s *Store) Sweep(ctx context.Context, after string, limit int, own *InFlight) (last string, p Promotion, err error) {
	var still []string
	visited := 0
	stmts := []entpgx.Stmt{s.stmt(sweepSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var stuck bool
			if err := rows.Scan(&last, &stuck); err != nil {
				return err
			}
			visited++
			if stuck {
				still = append(still, last)
			}
		}
		return rows.Err()
	}, after, limit)}
	if own != nil {
		stmts = append(stmts, s.forget(own))
	}
	err = s.transaction(ctx, fastLock, stmts...)
	if err != nil {
		return "", p, fmt.Errorf("look for partition keys whose next instance may run: %w", err)
	}
	if visited < limit {
		last = ""
	}
	if len(still) > 0 {
		p, err = s.Promote(ctx, still)
	}
	return last, p, err
}
