package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A node that is to be skipped runs no step. So its end needs no claim: no worker that knows its
// machine, no slot of its queue, no place or rate of a gate. It does not wait for its delay
// either, nor for its partition key, and its queue may be paused. The transaction that ends its
// wait puts it into the lane of such nodes, and there it stays until Skip ends it or a Restart
// lets it wait again. A paused one waits until it is resumed, as before.

// toBeSkipped is the condition that x is to be skipped now: the predicate of gen_durable_skip.
const toBeSkipped = `x.status = 'runnable' AND NOT x.paused AND x.pick_lane = {lane skip}`

// frontAgain is the lane of the runnable row g when a verb brings it to the front: a node that is
// to be skipped is none that a claim should find.
const frontAgain = `CASE WHEN g.pick_lane = {lane skip} THEN {lane skip} ELSE {lane front} END`

var skipForms = sweepsOf("skip", sweepForm.skip)

// skip fails nodes that are to be skipped. It uses SKIP LOCKED throughout, and locks all roots,
// and the rows behind the nodes, before it updates: see parentGate. So a node whose root is
// locked, or a row that waits behind it, is left to a later sweep. A Restart locks the root before
// it looks. If it was first, the lock of x reads the row again, and finds it in this lane no more.
//
// None of these nodes waits for another of them, since each has ceased to wait: no row is written
// twice. Behind them, the next level becomes due.
//
// $1 most rows $2 mark $3 ids to pass over $4 behind this id
func (f sweepForm) skip() string {
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
lost AS MATERIALIZED (
  SELECT x.ctid AS tid, x.id FROM {s}.gen_durable x ` + parentGate("true") + `
  WHERE ` + toBeSkipped + ` AND x.id > $4 AND p.open AND ` + f.among("$3") + `
  ORDER BY x.id LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED)` + f.open() + `UPDATE {s}.gen_durable g SET status = 'failed', failure = 'skipped', last_error = e.text, finished_at = (SELECT now FROM c),
  pick_lane = {lane front}, gate = NULL, place = NULL, seat = NULL,
  joined = CASE WHEN g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = ` + remembered + `'at', (SELECT now FROM c), 'kind', 'fail', 'error', left(e.text, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT now FROM c)
FROM (SELECT l.tid, 'skipped: ' || ` + unmetText("l.id") + ` AS text FROM lost l OFFSET 0) e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM lost) > 0
RETURNING g.id, g.partition_key` + f.as("key") + `, g.parent_round < 0` + f.as("streamed") +
		when(f.recorded, sweptInto("id, key, streamed", "NULL::text", "'node.skip'", "g.attempt", "g.last_error"))
}

// unmetText says why a node is skipped: by the first of its edges that is not met, or by one of its
// quorum if all others are. The GC may have deleted the origin, and the edge with it. OFFSET 0
// keeps the order by origin from the primary key, by which the way leads through all edges (T98).
func unmetText(id string) string {
	first := func(quorum bool) string {
		return `(SELECT ` + when(quorum, `'too few of a quorum are done: ' || `) + `'node ' || to_json(left(o.node, 80)) || ' is ' || o.status
    FROM (SELECT e.from_id, e.needs FROM {s}.edges e WHERE e.to_id = ` + id + ` OFFSET 0) e
    CROSS JOIN LATERAL (SELECT x.node, x.status FROM {s}.gen_durable x WHERE x.id = e.from_id OFFSET 0) o
    WHERE e.needs ` + either(quorum, `=`, `<`) + ` {needs any} AND o.status IN ('done', 'failed')
      AND ` + either(quorum, `o.status = 'failed'`, `e.needs <> {needs end} AND (e.needs = {needs done}) <> (o.status = 'done')`) + `
    ORDER BY e.from_id LIMIT 1)`
	}
	return `coalesce(` + first(false) + `,
  ` + first(true) + `,
  'a node that it waited for, which has been deleted since, did not end as it had to')`
}

// Skipped reports what one slice of Skip did.
type Skipped struct {
	Failed []int64
	Last   int64 // the last node of a full slice; 0: there is none behind it
	Promotion
}

// Skip fails up to limit nodes that are to be skipped, behind an id. It waits for no lock: a
// locked node, or one whose root or a row behind it is locked, is left to a later sweep. So is a
// row that Postgres refuses to change.
func (s *Store) Skip(ctx context.Context, mark string, after int64, limit int) (out Skipped, err error) {
	pass := s.apart.skip.ids()
	if err = s.skip(ctx, &out, false, mark, after, limit, pass, true); !holdsUp(err) {
		return out, err
	}
	var ids []int64
	if err = s.one(ctx, fastLock, toBeSkippedSQL, readIDs(&ids), after, limit, pass); err != nil {
		return out, fmt.Errorf("list nodes to skip: %w", err)
	}
	out.Refused, err = narrow(ids, func(ids []int64) error {
		return s.skip(ctx, &out, true, mark, 0, len(ids), ids, false)
	}, ofID)
	if out.Last = 0; len(ids) == limit {
		out.Last = ids[limit-1]
	}
	s.apart.skip.add(out.Refused)
	return out, err
}

// ToSkip reports whether there are nodes to be skipped. Behind a Skip, these are the nodes that it
// has passed by, since they or their roots were locked.
func (s *Store) ToSkip(ctx context.Context) (bool, error) {
	var ids []int64
	if err := s.one(ctx, fastLock, toBeSkippedSQL, readIDs(&ids), 0, 1, s.apart.skip.ids()); err != nil {
		return false, fmt.Errorf("look for nodes to skip: %w", err)
	}
	return len(ids) > 0, nil
}

// skip runs one transaction. promote has the same meaning as for reap.
func (s *Store) skip(ctx context.Context, sum *Skipped, these bool, mark string, after int64, limit int, ids []int64, promote bool) error {
	var out Skipped
	err := s.interactive(ctx, fastLock, func(send send) error {
		out = Skipped{}
		var keys []string
		var joiners joiners
		read := func(rows pgx.Rows) error {
			var id int64
			var key *string
			var streamed bool
			_, err := pgx.ForEachRow(rows, []any{&id, &key, &streamed}, func() error {
				out.Failed, out.Last = append(out.Failed, id), max(out.Last, id)
				joiners.add(id, streamed)
				if key != nil {
					keys = append(keys, *key)
				}
				return nil
			})
			return err
		}
		if err := send(s.stmt(skipForms[sweepForm{these, s.recording.Load()}], read, limit, mark, ids, after)); err != nil {
			return err
		}
		return s.follow(send, &joiners, out.Failed, keys, mark, promote, &out.Promotion)
	})
	if err != nil {
		return fmt.Errorf("skip nodes: %w", err)
	}
	if sum.Failed = append(sum.Failed, out.Failed...); len(out.Failed) == limit {
		sum.Last = out.Last
	}
	sum.add(out.Promotion)
	return nil
}

// toBeSkippedSQL lists the rows that Skip would fail. $1 behind this id $2 most rows $3 not these
var toBeSkippedSQL = named("to be skipped", `SELECT x.id FROM {s}.gen_durable x
WHERE `+toBeSkipped+` AND x.id > $1 AND x.id <> ALL($3::bigint[]) ORDER BY x.id LIMIT $2`)
