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
	Within         Bounds    // others do not count
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
	More   bool       // there may be older ones
	Groups []FailureGroup
}

// failuresSQL groups the failed ones among the newest ended instances, the most frequent first. It
// goes along gen_durable_finished from its end, and so reads no more than $1 rows, however large
// the table is. Numbers in a text do not tell one error from another: most are ids and times.
//
// Within bounds, it reads rows outside, too, and answers nothing of them.
//
// $1 most $2 machine $3 queue $4 since $5 limit; within bounds $6 queues $7 machines $8 labels
// (NULL: any).
var (
	failuresSQL       = named("failures", failuresText(false))
	failuresWithinSQL = named("failures", failuresText(true), "within")
)

func failuresText(within bool) string {
	return `WITH seen AS MATERIALIZED (
  SELECT g.id, g.fsm, g.fsm_version, g.step, g.queue, g.status, g.failure, left(coalesce(g.last_error, ''), 200) AS error, g.finished_at` + when(within, `,
    coalesce(($6::text[] IS NULL OR g.queue = ANY($6)) AND ($7::text[] IS NULL OR g.fsm = ANY($7))
      AND ($8::jsonb IS NULL OR g.labels @> $8), false) AS within`) + `
  FROM {s}.gen_durable g WHERE g.finished_at IS NOT NULL AND g.finished_at >= coalesce($4::timestamptz, '-infinity')
  ORDER BY g.finished_at DESC LIMIT $1::int)
SELECT t.looked, t.since, coalesce(f.fsm, ''), coalesce(f.fsm_version, 0), coalesce(f.step, ''), coalesce(f.queue, ''), coalesce(f.failure, ''),
  coalesce(f.error, ''), coalesce(f.n, 0), coalesce(f.first, 'epoch'), coalesce(f.last, 'epoch'), coalesce(f.newest, 0)` + when(within, `, t.more`) + `
FROM (SELECT count(*) AS looked, min(finished_at) AS since` + when(within, `, (SELECT count(*) >= $1::int FROM seen) AS more`) + ` FROM seen` + when(within, ` WHERE within`) + `) t
LEFT JOIN (
  SELECT fsm, fsm_version, step, queue, coalesce(failure, '') AS failure, (array_agg(error ORDER BY finished_at DESC, id DESC))[1] AS error,
    count(*) AS n, min(finished_at) AS first, max(finished_at) AS last, (array_agg(id ORDER BY finished_at DESC, id DESC))[1] AS newest
  FROM seen WHERE ` + when(within, `within AND `) + `status = 'failed' AND ($2::text IS NULL OR fsm = $2) AND ($3::text IS NULL OR queue = $3)
  GROUP BY fsm, fsm_version, step, queue, coalesce(failure, ''), regexp_replace(error, '[0-9]+', '#', 'g')
  ORDER BY n DESC, last DESC, newest DESC LIMIT $5::int) f ON true
ORDER BY f.n DESC, f.last DESC, f.newest DESC`
}

// Failures groups what has failed lately.
func (s *Store) Failures(ctx context.Context, f *FailureFilter) (out Failures, err error) {
	text, args := failuresSQL, []any{f.Most, optional(f.Machine), optional(f.Queue), timeOf(f.Since), f.Limit}
	within := !f.Within.IsZero()
	if within {
		text, args = failuresWithinSQL, append(args, f.Within.Queues, f.Within.Machines, optional(f.Within.Labels))
	}
	err = s.one(ctx, fastLock, text, func(rows pgx.Rows) error {
		for rows.Next() {
			var g FailureGroup
			into := []any{&out.Looked, &out.Since, &g.Machine, &g.Version, &g.Step, &g.Queue, &g.Failure, &g.Error, &g.Count, &g.First, &g.Last, &g.Newest}
			if within {
				into = append(into, &out.More)
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			out.More = out.More || !within && out.Looked >= int64(f.Most)
			if g.Count > 0 {
				out.Groups = append(out.Groups, g)
			}
		}
		return rows.Err()
	}, args...)
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
