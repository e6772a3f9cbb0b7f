package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// promoteSQL brings a key's next row forward: in each queue of the key, the head, if it waits in lane 1. It runs after everything that
// ends a keyed claim or takes a runnable keyed row away, in the same transaction but as a later statement, so that its snapshot holds
// what it follows. Its clock is clock_timestamp(), once: a head that came due since the statement was sent would else be passed over.
//
// A head that someone has locked is skipped, never waited for, and reported: the caller must go on with
// settleSQL, else the key stands still.
//
// $1 keys $2 NULL, or per key the instance whose claim ended $3 the mark which that instance must bear: a stale outcome has ended nothing.
// Returns key, queue, whether it was brought forward.
var promoteSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
h AS MATERIALIZED (
  SELECT k.k, q.q, n.id FROM (
    SELECT DISTINCT u.k FROM unnest($1::text[], $2::bigint[]) AS u(k, id)
    WHERE u.id IS NULL OR (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = u.id) = $3::uuid) k
  CROSS JOIN LATERAL ` + queuesOf("k.k") + ` q
  CROSS JOIN LATERAL ` + headOf("k.k", "q.q", "(SELECT now FROM c)") + ` n
  WHERE n.pick_lane = 1),
l AS MATERIALIZED (
  SELECT g.id FROM {s}.gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM h)) AND g.pick_lane = 1 AND g.status = 'runnable'
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
u AS (UPDATE {s}.gen_durable g SET pick_lane = 0 FROM l WHERE g.id = l.id RETURNING g.id)
SELECT h.k, h.q, u.id IS NOT NULL FROM h LEFT JOIN u ON u.id = h.id`

// Promotion says what became of the heads of some partition keys.
type Promotion struct {
	Queues []string // where a row came forward: worth a nudge
	Missed []string // keys of which someone had a row locked: Promote them, soon
	// Refused are rows that Postgres refuses to change, and keys whose next row it is. A key is not
	// missed for that: the sweep of the keys finds it again.
	Refused []Refused
}

func (p *Promotion) add(o Promotion) {
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

// settleSQL makes sure that partition keys go on for which no transaction answers: whose head somebody had
// locked when promoteSQL should have brought it forward, or of which claimSQL has moved a row to lane 1
// behind an anchor that somebody had locked. It runs in a transaction that begins after the one that left
// them so, which I call the mover's here, and again until nothing of the key is locked any more:
//
//   - Something executes the key. If its row can be locked and still executes, nobody has begun to end the
//     claim. Who ends it must lock the row first and promotes the key by a later statement, whose snapshot
//     is later than this one's, and so than the mover's commit: it sees what the mover has left. The key is
//     settled. If the row cannot be locked, its end may be under way with a promotion that is past
//     already, and saw nothing: again.
//   - Nothing does, and a head is in lane 1: it comes forward. If it is locked: again.
//   - Nothing does, and a head is in front. If it can be locked and still is what it was, then what takes it
//     away from the front, a claim or another's verb, comes later, and answers for the key as above: by its
//     own promotion, or as another mover. If it is locked, that may be a verb (a pause, a deadline) whose
//     promotion is past: again.
//
// Several may settle one key at a time: each that meets the other's lock does so again. If the process dies
// that has it in mind, the key may stand still with its head in lane 1 until sweepSQL finds it. None of
// this can break the order of a key, since a lane is a hint.
//
// $1 keys. Returns key, queue or NULL, whether it is settled; nothing for a key that is executed and settled.
var settleSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
k AS MATERIALIZED (
  SELECT k.k, b.id FROM (SELECT DISTINCT unnest($1::text[]) AS k) k
  LEFT JOIN LATERAL (SELECT g.id FROM {s}.gen_durable g WHERE g.partition_key = k.k AND g.status = 'executing' LIMIT 1) b ON true),
busy AS MATERIALIZED (
  SELECT g.id FROM {s}.gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM k WHERE id IS NOT NULL)) AND coalesce(g.status = 'executing', false)
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
h AS MATERIALIZED (
  SELECT k.k, q.q, n.id FROM k CROSS JOIN LATERAL ` + queuesOf("k.k") + ` q
  CROSS JOIN LATERAL ` + headOf("k.k", "q.q", "(SELECT now FROM c)") + ` n WHERE k.id IS NULL),
l AS MATERIALIZED (
  SELECT g.id, g.pick_lane FROM {s}.gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM h)) AND coalesce(g.status = 'runnable', false) AND NOT g.paused
    AND g.eligible_at <= (SELECT now FROM c)
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
u AS (UPDATE {s}.gen_durable g SET pick_lane = 0 FROM l WHERE g.id = l.id AND l.pick_lane = 1)
SELECT h.k, h.q, l.id IS NOT NULL FROM h LEFT JOIN l ON l.id = h.id
UNION ALL SELECT k.k, NULL, false FROM k WHERE k.id IS NOT NULL AND k.id NOT IN (SELECT id FROM busy)`

// Promote brings the next row of each key forward, or finds that it is in front, or that something executes
// the key. The engine's transactions do the same for the keys that they free; this is for keys that they
// report in Missed, or claims in Unsettled: until it reports them in Missed no more. A key whose next
// row Postgres refuses to change does not keep the others.
func (s *Store) Promote(ctx context.Context, keys []string) (p Promotion, err error) {
	settle := func(keys []string) error {
		var one Promotion
		if err := s.one(ctx, fastLock, "settle", settleSQL, one.read, keys); err != nil {
			return fmt.Errorf("promote %d partition keys: %w", len(keys), err)
		}
		p.add(one)
		return nil
	}
	if err = settle(keys); blames(err) {
		p.Refused, err = narrow(keys, settle, func(key string, err error) Refused { return Refused{Key: key, Err: err} })
	}
	return p, err
}

// sweepSQL lists partition keys after $1 whose head waits in lane 1 though nothing executes the key: a process died between missing a
// promotion and repeating it, foreign SQL changed a row, or the server's clock was set back. $1 key, $2 the most keys to visit.
var sweepSQL = `WITH RECURSIVE keys(k) AS (
  (SELECT g.partition_key FROM {s}.gen_durable g
   WHERE g.status = 'runnable' AND NOT g.paused AND g.partition_key > $1 ORDER BY g.partition_key LIMIT 1)
  UNION ALL
  SELECT (SELECT g.partition_key FROM {s}.gen_durable g
    WHERE g.status = 'runnable' AND NOT g.paused AND g.partition_key > keys.k ORDER BY g.partition_key LIMIT 1)
  FROM keys WHERE keys.k IS NOT NULL),
slice AS MATERIALIZED (SELECT k FROM keys WHERE k IS NOT NULL LIMIT $2)
SELECT s.k, b.id IS NULL AND EXISTS (
    SELECT 1 FROM (SELECT DISTINCT g.queue FROM {s}.gen_durable g WHERE g.partition_key = s.k AND g.status = 'runnable' AND NOT g.paused
      AND g.pick_lane = 1) q
    CROSS JOIN LATERAL ` + headOf("s.k", "q.queue", "statement_timestamp()") + ` n WHERE n.pick_lane = 1)
FROM slice s
LEFT JOIN LATERAL (SELECT g.id FROM {s}.gen_durable g WHERE g.partition_key = s.k AND g.status = 'executing' LIMIT 1) b ON true
ORDER BY s.k`

// Sweep visits up to limit partition keys after the given one and promotes those that stand still. It
// returns the last key it visited, "" at the end. It is a safety net: the engine's own statements leave
// nothing for it. If own is given it also forgets lost claims that nothing runs of any more.
func (s *Store) Sweep(ctx context.Context, after string, limit int, own *InFlight) (last string, p Promotion, err error) {
	var still []string
	visited := 0
	stmts := []entpgx.Stmt{s.stmt("sweep", sweepSQL, func(rows pgx.Rows) error {
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
		return "", p, fmt.Errorf("sweep partition keys: %w", err)
	}
	if visited < limit {
		last = ""
	}
	if len(still) > 0 {
		p, err = s.Promote(ctx, still)
	}
	return last, p, err
}
