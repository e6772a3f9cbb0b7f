package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// overdueText selects the rows that an expiry fails, and that a poll looks for. It excludes claimed
// rows: their worker knows the deadline and ends the step's context then. The engine cannot end a
// step that ignores its context. Failing its row would only let the next row of its partition key
// begin beside it, and drop an outcome that its lease still covers. An instance that loses its
// worker is reaped first.
const overdueText = `x.deadline <= (SELECT now FROM c) AND x.finished_at IS NULL AND coalesce(x.status <> 'executing', false)`

var expireForms = sweepsOf("expire", sweepForm.expire)

// expire fails instances whose deadline is past, whatever they wait for, paused or not. Like a
// Fail, it leaves awaits, round and inbox, so that a Retry sees them. It uses SKIP LOCKED
// throughout: a transaction that has a row locked goes first, and a child whose parent is locked
// waits for a later sweep; see parentGate.
//
// $1 most rows $2 mark $3 ids to pass over
func (f sweepForm) expire() string {
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
overdue AS MATERIALIZED (
  SELECT x.ctid AS tid, x.parent_id, x.status, 'over its deadline of ' || to_char(x.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    || ' at step ' || x.step || ', ' || x.status || CASE WHEN x.paused THEN ', paused' ELSE '' END AS text
  FROM {s}.gen_durable x ` + parentGate("true") + `
  WHERE ` + overdueText + ` AND p.open AND ` + f.among("$3") + `
  ` + f.order("x.deadline") + ` LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED)` + f.open() + `UPDATE {s}.gen_durable g SET status = 'failed', failure = 'deadline', last_error = e.text, finished_at = (SELECT now FROM c),
  pick_lane = {lane front}, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL, await_deadline = NULL,
  joined = CASE WHEN g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = ` + remembered + `'at', (SELECT now FROM c), 'kind', 'deadline', 'error', left(e.text, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT now FROM c)
FROM overdue e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM overdue) > 0
RETURNING g.id, CASE WHEN e.status = 'runnable' THEN g.partition_key END` + f.as("key") + `, e.parent_id IS NOT NULL` + f.as("child") + `,
  g.node IS NOT NULL` + f.as("node") + `, g.parent_round < 0` + f.as("streamed") +
		when(f.recorded, sweptInto("id, key, child, node, streamed", "NULL::text", "'deadline'", "g.attempt", "g.last_error"))
}

// Expired reports what a sweep of deadlines did.
type Expired struct {
	Failed []int64
	Promotion
}

// Expire fails up to limit instances whose deadline is past. Rows that Postgres refuses to change
// do not keep it from failing the others (T22).
func (s *Store) Expire(ctx context.Context, mark string, limit int) (out Expired, err error) {
	pass := s.apart.expire.ids()
	if err = s.expire(ctx, &out, false, mark, limit, pass, true); !holdsUp(err) {
		return out, err
	}
	var ids []int64
	if err = s.one(ctx, fastLock, overdueSQL, readIDs(&ids), limit, pass); err != nil {
		return out, fmt.Errorf("list instances over their deadline: %w", err)
	}
	out.Refused, err = narrow(ids, func(ids []int64) error {
		return s.expire(ctx, &out, true, mark, len(ids), ids, false)
	}, ofID)
	s.apart.expire.add(out.Refused)
	return out, err
}

// expire runs one transaction. promote has the same meaning as for reap.
func (s *Store) expire(ctx context.Context, sum *Expired, these bool, mark string, limit int, ids []int64, promote bool) error {
	var out Expired
	err := s.interactive(ctx, fastLock, func(send send) error {
		var keys []string
		var joiners joiners
		var nodes []int64
		read := func(rows pgx.Rows) error {
			var id int64
			var key *string
			var child, node, streamed bool
			_, err := pgx.ForEachRow(rows, []any{&id, &key, &child, &node, &streamed}, func() error {
				out.Failed = append(out.Failed, id)
				if key != nil {
					keys = append(keys, *key)
				}
				if child {
					joiners.add(id, streamed)
				}
				if node {
					nodes = append(nodes, id)
				}
				return nil
			})
			return err
		}
		if err := send(s.stmt(expireForms[sweepForm{these, s.recording.Load()}], read, limit, mark, ids)); err != nil {
			return err
		}
		return s.follow(send, &joiners, nodes, keys, mark, promote, &out.Promotion)
	})
	if err != nil {
		return fmt.Errorf("fail instances over their deadline: %w", err)
	}
	sum.Failed = append(sum.Failed, out.Failed...)
	sum.add(out.Promotion)
	return nil
}

// overdueSQL lists the rows that an expiry would fail. $1 most rows $2 ids to pass over
var overdueSQL = named("overdue", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT x.id FROM {s}.gen_durable x WHERE `+overdueText+` AND x.id <> ALL($2::bigint[]) ORDER BY x.deadline LIMIT $1`)
