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
	Fingerprint    *int64    // nil: any
	Since          time.Time // that ended at or after this time; zero: any
	Kinds          int       // so many fingerprints are looked at
	Most           int       // so many failures are counted, or ten of each fingerprint
	Each           int       // of one fingerprint
	Limit          int       // of groups
	Within         Bounds    // others do not count
}

// FailureGroup counts instances that failed alike: that have one fingerprint, which stands for the
// machine, its version, the step, the queue, the kind of failure, and the error without the parts
// that differ from instance to instance.
type FailureGroup struct {
	Fingerprint int64
	Machine     string
	Version     int32
	Step, Queue string
	Failure     string
	Error       string // of the newest, its first 200 characters
	Count       int64
	AtLeast     bool // there may be more
	First, Last time.Time
	Newest      int64
}

// Failures are groups of failures, and how far these were looked for.
type Failures struct {
	Looked int64      // failures that were counted
	Since  *time.Time // when the oldest of them ended; nil: there was none
	More   bool       // there may be other groups
	Groups []FailureGroup
}

// newestFailures is the number of newest failures whose fingerprints come first, if there are more
// fingerprints than are looked at.
const newestFailures = "1000"

// countLeast is how many instances of each fingerprint are counted, however many those before it
// have.
const countLeast = "10"

// failuresSQL groups failed instances by their fingerprints. It goes along gen_durable_alike from
// one fingerprint to the next ("walk"), reads the newest instance of each ("heads"), and counts
// along the same index, without a look at the table: the newest fingerprint first, $3 instances of
// each and $2 of all, and ten of each that is left ("counted"). If there are more fingerprints than
// $1, the newest failures decide which come first; the others come in no order. So it reads a
// bounded number of rows, however large the table is.
//
// Instances of one fingerprint are of one queue and machine. So bounds of these select among the
// newest; only bounds of labels have to look at each counted row.
//
// $1 fingerprints $2 instances $3 instances of each $4 machine $5 queue $6 since $7 limit $8
// fingerprint; within bounds $9 queues $10 machines (NULL: any), and $11 labels.
var (
	failuresSQL         = named("failures", failuresText(false, false))
	failuresWithinSQL   = named("failures", failuresText(true, false), "within")
	failuresLabelledSQL = named("failures", failuresText(true, true), "labelled")
)

func failuresText(within, labelled bool) string {
	return `WITH RECURSIVE walk AS (
  SELECT coalesce($8::bigint, (SELECT g.fingerprint FROM {s}.gen_durable g WHERE g.fingerprint IS NOT NULL ORDER BY g.fingerprint LIMIT 1)) AS fingerprint, 1 AS nth
  UNION ALL
  SELECT (SELECT g.fingerprint FROM {s}.gen_durable g WHERE g.fingerprint > w.fingerprint ORDER BY g.fingerprint LIMIT 1), w.nth + 1
  FROM walk w WHERE $8 IS NULL AND w.fingerprint IS NOT NULL AND w.nth <= $1::int),
many AS MATERIALIZED (SELECT count(w.fingerprint) > $1 AS many FROM walk w),
kinds AS MATERIALIZED (SELECT k.fingerprint FROM (
    SELECT w.fingerprint, NULL::bigint AS newest FROM walk w WHERE w.fingerprint IS NOT NULL
    UNION ALL
    SELECT n.fingerprint, n.id FROM (SELECT g.fingerprint, g.id FROM {s}.gen_durable g
      WHERE g.status = 'failed' AND (SELECT m.many FROM many m) ORDER BY g.id DESC LIMIT ` + newestFailures + `) n) k
  GROUP BY k.fingerprint ORDER BY max(k.newest) DESC NULLS LAST LIMIT $1),
heads AS MATERIALIZED (SELECT array_agg(h.fingerprint ORDER BY h.id DESC) AS fingerprints FROM kinds k CROSS JOIN LATERAL (
    SELECT g.fingerprint, g.id, g.fsm, g.queue FROM {s}.gen_durable g WHERE g.fingerprint = k.fingerprint ORDER BY g.id DESC LIMIT 1) h
  WHERE ($4::text IS NULL OR h.fsm = $4) AND ($5::text IS NULL OR h.queue = $5)` + when(within, `
    AND ($9::text[] IS NULL OR h.queue = ANY($9)) AND ($10::text[] IS NULL OR h.fsm = ANY($10))`) + `),
counted AS (
  SELECT 0 AS nth, NULL::bigint AS fingerprint, $2::bigint AS rest, 0::bigint AS n, false AS at_least, NULL::timestamptz AS first, NULL::timestamptz AS last,
    NULL::bigint AS newest
  UNION ALL
  SELECT c.nth + 1, h.fingerprints[c.nth + 1], c.rest - v.seen, v.n, v.seen >= m.most, v.first, v.last, v.newest
  FROM counted c CROSS JOIN heads h
  CROSS JOIN LATERAL (SELECT least($3::bigint, greatest(` + countLeast + `, c.rest - ` + countLeast + ` * (cardinality(h.fingerprints) - c.nth - 1))) AS most) m
  CROSS JOIN LATERAL (
    SELECT count(*) AS seen, count(*) FILTER (WHERE x.fits) AS n, min(x.finished_at) FILTER (WHERE x.fits) AS first,
      max(x.finished_at) FILTER (WHERE x.fits) AS last, (array_agg(x.id ORDER BY x.finished_at DESC, x.id DESC) FILTER (WHERE x.fits))[1] AS newest
    FROM (SELECT g.id, g.finished_at, g.finished_at >= coalesce($6::timestamptz, '-infinity')` + when(labelled, ` AND coalesce(g.labels @> $11::jsonb, false)`) + ` AS fits
      FROM {s}.gen_durable g WHERE g.fingerprint = h.fingerprints[c.nth + 1] ORDER BY g.id DESC LIMIT m.most) x) v
  WHERE c.nth < cardinality(h.fingerprints))
SELECT t.looked, t.since, t.more, coalesce(f.fingerprint, 0), coalesce(f.fsm, ''), coalesce(f.fsm_version, 0), coalesce(f.step, ''), coalesce(f.queue, ''),
  coalesce(f.failure, ''), coalesce(f.error, ''), coalesce(f.n, 0), coalesce(f.at_least, false), coalesce(f.first, 'epoch'), coalesce(f.last, 'epoch'),
  coalesce(f.newest, 0)
FROM (SELECT coalesce(sum(c.n), 0)::bigint AS looked, min(c.first) AS since,
    (SELECT m.many FROM many m) OR coalesce(bool_or(c.at_least AND c.n = 0), false) AS more FROM counted c) t
LEFT JOIN (
  SELECT c.fingerprint, c.n, c.at_least, c.first, c.last, c.newest, g.fsm, g.fsm_version, g.step, g.queue, g.failure, left(g.last_error, 200) AS error
  FROM (SELECT * FROM counted WHERE n > 0 ORDER BY n DESC, last DESC, newest DESC LIMIT $7::int) c
  CROSS JOIN LATERAL (SELECT * FROM {s}.gen_durable g WHERE g.id = c.newest OFFSET 0) g) f ON true
ORDER BY f.n DESC, f.last DESC, f.newest DESC`
}

// Failures groups failed instances.
func (s *Store) Failures(ctx context.Context, f *FailureFilter) (out Failures, err error) {
	text := failuresSQL
	args := []any{f.Kinds, f.Most, f.Each, optional(f.Machine), optional(f.Queue), timeOf(f.Since), f.Limit, f.Fingerprint}
	if !f.Within.IsZero() {
		text, args = failuresWithinSQL, append(args, f.Within.Queues, f.Within.Machines)
	}
	if f.Within.Labels != "" {
		text, args = failuresLabelledSQL, append(args, f.Within.Labels)
	}
	err = s.one(ctx, fastLock, text, func(rows pgx.Rows) error {
		for rows.Next() {
			var g FailureGroup
			if err := rows.Scan(&out.Looked, &out.Since, &out.More, &g.Fingerprint, &g.Machine, &g.Version, &g.Step, &g.Queue, &g.Failure, &g.Error, &g.Count,
				&g.AtLeast, &g.First, &g.Last, &g.Newest); err != nil {
				return err
			}
			if g.Count > 0 {
				out.Groups = append(out.Groups, g)
			}
		}
		return rows.Err()
	}, args...)
	if err != nil {
		return Failures{}, fmt.Errorf("group failures: %w", err)
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
