package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// FailureFilter selects instances that have failed.
type FailureFilter struct {
	Machine, Queue string    // "": any
	Since          time.Time // that ended at or after this time; zero: any
	Most           int       // so many of the newest ended instances are looked at
	Limit          int       // of groups
}

// FailureGroup counts instances that failed alike.
type FailureGroup struct {
	Machine     string
	Version     int32
	Step, Queue string
	Failure     string
	Error       string // of the newest, its first 200 characters
	Count       int64
	First, Last time.Time
	Newest      int64
}

// Failures are the newest failures, and how far back they were looked for.
type Failures struct {
	Looked int64      // ended instances that were looked at
	Since  *time.Time // when the oldest of them ended; nil: there was none
	Groups []FailureGroup
}

// failuresSQL groups the failed ones among the newest ended instances, the most frequent first. It
// goes along gen_durable_finished from its end, and so reads no more than $1 rows, however large
// the table is. Numbers in a text do not tell one error from another: most are ids and times.
//
// $1 most $2 machine $3 queue $4 since $5 limit
var failuresSQL = named("failures", `WITH seen AS MATERIALIZED (
  SELECT g.id, g.fsm, g.fsm_version, g.step, g.queue, g.status, g.failure, left(coalesce(g.last_error, ''), 200) AS error, g.finished_at
  FROM {s}.gen_durable g WHERE g.finished_at IS NOT NULL AND g.finished_at >= coalesce($4::timestamptz, '-infinity')
  ORDER BY g.finished_at DESC LIMIT $1::int)
SELECT t.looked, t.since, coalesce(f.fsm, ''), coalesce(f.fsm_version, 0), coalesce(f.step, ''), coalesce(f.queue, ''), coalesce(f.failure, ''),
  coalesce(f.error, ''), coalesce(f.n, 0), coalesce(f.first, 'epoch'), coalesce(f.last, 'epoch'), coalesce(f.newest, 0)
FROM (SELECT count(*) AS looked, min(finished_at) AS since FROM seen) t
LEFT JOIN (
  SELECT fsm, fsm_version, step, queue, coalesce(failure, '') AS failure, (array_agg(error ORDER BY finished_at DESC, id DESC))[1] AS error,
    count(*) AS n, min(finished_at) AS first, max(finished_at) AS last, (array_agg(id ORDER BY finished_at DESC, id DESC))[1] AS newest
  FROM seen WHERE status = 'failed' AND ($2::text IS NULL OR fsm = $2) AND ($3::text IS NULL OR queue = $3)
  GROUP BY fsm, fsm_version, step, queue, coalesce(failure, ''), regexp_replace(error, '[0-9]+', '#', 'g')
  ORDER BY n DESC, last DESC, newest DESC LIMIT $5::int) f ON true
ORDER BY f.n DESC, f.last DESC, f.newest DESC`)

// Failures groups what has failed lately.
func (s *Store) Failures(ctx context.Context, f *FailureFilter) (out Failures, err error) {
	err = s.one(ctx, fastLock, failuresSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var g FailureGroup
			if err := rows.Scan(&out.Looked, &out.Since, &g.Machine, &g.Version, &g.Step, &g.Queue, &g.Failure, &g.Error, &g.Count, &g.First, &g.Last,
				&g.Newest); err != nil {
				return err
			}
			if g.Count > 0 {
				out.Groups = append(out.Groups, g)
			}
		}
		return rows.Err()
	}, f.Most, optional(f.Machine), optional(f.Queue), timeOf(f.Since), f.Limit)
	if err != nil {
		return Failures{}, fmt.Errorf("group the newest failures: %w", err)
	}
	return out, nil
}

// ChildCount counts children of one round that are alike.
type ChildCount struct {
	Round   int64
	Machine string
	Status  string
	Count   int64
}

// childCountsSQL counts the children of an instance along gen_durable_parent, up to $2 of them.
var childCountsSQL = named("child counts", `SELECT abs(parent_round), fsm, status::text, count(*) FROM (
  SELECT g.parent_round, g.fsm, g.status FROM {s}.gen_durable g WHERE g.parent_id = $1::bigint LIMIT $2::int) c
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`)

// ChildCounts counts the children of an instance by round, machine and status, up to most of them.
func (s *Store) ChildCounts(ctx context.Context, parent int64, most int) (counts []ChildCount, err error) {
	err = s.one(ctx, fastLock, childCountsSQL, func(rows pgx.Rows) error {
		counts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ChildCount])
		return err
	}, parent, most)
	if err != nil {
		return nil, fmt.Errorf("count the children of instance %d: %w", parent, err)
	}
	return counts, nil
}
