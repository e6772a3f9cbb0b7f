package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// overdueText is what expireSQL fails, and what a poll looks for. A claim is not among it: its worker has the deadline with it and ends the
// step's context then. The engine cannot end a step that does not listen, so to fail its row would only let the next of its partition key
// begin beside it, and drop an outcome that its lease still covers. What loses its worker is reaped first.
const overdueText = `x.deadline <= (SELECT now FROM c) AND x.finished_at IS NULL AND coalesce(x.status <> 'executing', false)`

// expireSQL fails instances whose deadline is past, whatever they wait for, paused or not. What a
// Stop leaves, this leaves: awaits, round and inbox, so that a Retry sees them. SKIP LOCKED
// throughout: whoever is at a row goes first, and a child whose parent someone holds waits for a
// later sweep; see parentGate.
//
// $1 most rows $2 mark $3 only these ids, or NULL
var expireSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
overdue AS MATERIALIZED (
  SELECT x.ctid AS tid, x.parent_id, x.status, 'over its deadline of ' || to_char(x.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    || ' at step ' || x.step || ', ' || x.status || CASE WHEN x.paused THEN ', paused' ELSE '' END AS text
  FROM {s}.gen_durable x ` + parentGate("true") + `
  WHERE ` + overdueText + ` AND p.open AND ($3::bigint[] IS NULL OR x.id = ANY($3::bigint[]))
  ORDER BY x.deadline LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED)
UPDATE {s}.gen_durable g SET status = 'failed', failure = 'deadline', last_error = e.text, finished_at = (SELECT now FROM c),
  pick_lane = 0, locked_by = NULL, lease_expires_at = NULL, await_deadline = NULL,
  joined = CASE WHEN g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = ` + remembered + `'at', (SELECT now FROM c), 'kind', 'deadline', 'error', left(e.text, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT now FROM c)
FROM overdue e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM overdue) > 0
RETURNING g.id, CASE WHEN e.status = 'runnable' THEN g.partition_key END, e.parent_id IS NOT NULL`

// Expired is what a sweep of deadlines did.
type Expired struct {
	Failed   []int64
	Poisoned []int64 // ids whose row Postgres refuses to change: for the log
	Promotion
}

// Expire fails up to limit instances whose deadline is past. One row that cannot be changed does not keep the others (T22).
func (s *Store) Expire(ctx context.Context, mark string, limit int) (Expired, error) {
	out, err := s.expire(ctx, mark, limit, nil)
	if Classify(err) != FaultData {
		return out, err
	}
	ids, err := s.overdue(ctx, limit)
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		one, err := s.expire(ctx, mark, 1, []int64{id})
		switch {
		case Classify(err) == FaultData:
			out.Poisoned = append(out.Poisoned, id)
		case err != nil:
			return out, err
		default:
			out.Failed = append(out.Failed, one.Failed...)
			out.Queues, out.Missed = append(out.Queues, one.Queues...), append(out.Missed, one.Missed...)
		}
	}
	return out, nil
}

func (s *Store) expire(ctx context.Context, mark string, limit int, only []int64) (Expired, error) {
	var out Expired
	err := s.interactive(ctx, fastLock, func(send send) error {
		var keys []string
		var joiners []int64
		read := func(rows pgx.Rows) error {
			var id int64
			var key *string
			var child bool
			_, err := pgx.ForEachRow(rows, []any{&id, &key, &child}, func() error {
				out.Failed = append(out.Failed, id)
				if key != nil {
					keys = append(keys, *key)
				}
				if child {
					joiners = append(joiners, id)
				}
				return nil
			})
			return err
		}
		if err := send(s.stmt("expire", expireSQL, read, limit, mark, only)); err != nil {
			return err
		}
		return s.follow(send, joiners, keys, mark, &out.Promotion)
	})
	if err != nil {
		return Expired{}, fmt.Errorf("fail instances over their deadline: %w", err)
	}
	return out, nil
}

const overdueSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT x.id FROM {s}.gen_durable x WHERE ` + overdueText + ` ORDER BY x.deadline LIMIT $1`

func (s *Store) overdue(ctx context.Context, limit int) (ids []int64, err error) {
	if err := s.one(ctx, fastLock, "overdue", overdueSQL, readIDs(&ids), limit); err != nil {
		return nil, fmt.Errorf("list instances over their deadline: %w", err)
	}
	return ids, nil
}
