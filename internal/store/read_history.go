package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Happened is a row of the history, as it is stored.
type Happened struct {
	At                                     time.Time
	Instance, Visit, Took, Waited          *int64 // Took and Waited in µs
	Attempt, Version                       *int32
	Kind                                   string
	Worker, Machine, Step, To              *string
	Failure, Error, Actor, Reason, Subject *string
	Diff, Before, After                    json.RawMessage
	LeftOut                                int64 // bytes of these that were not read
	place                                  HistoryPlace
}

// HistoryPlace is where a page of a timeline ended. The zero value is before the first row. Rows
// never move, so their place in the table is their identity.
type HistoryPlace struct {
	At    time.Time
	Table int64
	Row   string
}

// Place returns the row's place in its timeline.
func (h *Happened) Place() HistoryPlace { return h.place }

const happenedColumns = `h.at, h.instance, h.visit, h.took, h.waited, h.attempt, h.fsm_version, h.kind, h.worker::text, h.fsm, h.step, h.to_step,
  h.failure, h.error, h.actor, h.reason, h.subject`

// timelineSQL reads a page of what happened to an instance, oldest first. The second condition on
// the time leaves out the days that are read already. $1 instance $2–$4 time, table and row of the
// last row of the page before $5 limit
var timelineSQL = named("timeline", `SELECT `+happenedColumns+`, h.diff::text, h.before::text, h.after::text, 0::bigint, h.tableoid::bigint, h.ctid::text
FROM {s}.history h
WHERE h.instance = $1 AND (h.at, h.tableoid::bigint, h.ctid) > ($2::timestamptz, $3::bigint, $4::text::tid) AND h.at >= $2::timestamptz
ORDER BY h.at, h.tableoid::bigint, h.ctid LIMIT $5`)

// timelineBackSQL is timelineSQL from the newest row on. $2 is NULL on the first page. It returns
// the documents of the newest rows, as long as they fit into $6 bytes together, and of the others
// their size.
var timelineBackSQL = named("timeline back", `SELECT `+happenedColumns+`, CASE WHEN h.until <= $6::bigint THEN h.diff::text END,
  CASE WHEN h.until <= $6::bigint THEN h.before::text END, CASE WHEN h.until <= $6::bigint THEN h.after::text END,
  CASE WHEN h.until <= $6::bigint THEN 0 ELSE h.bytes END, h.part, h.place::text
FROM (SELECT p.*, sum(p.bytes) OVER (ORDER BY p.at DESC, p.part DESC, p.place DESC) AS until FROM (
  SELECT h.*, h.tableoid::bigint AS part, h.ctid AS place,
    (coalesce(octet_length(h.diff::text), 0) + coalesce(octet_length(h.before::text), 0) + coalesce(octet_length(h.after::text), 0))::bigint AS bytes
  FROM {s}.history h WHERE h.instance = $1 AND h.at <= coalesce($2::timestamptz, 'infinity')
    AND (h.at, h.tableoid::bigint, h.ctid) < (coalesce($2::timestamptz, 'infinity'), $3::bigint, $4::text::tid)
  ORDER BY h.at DESC, h.tableoid::bigint DESC, h.ctid DESC LIMIT $5) p) h
ORDER BY h.at DESC, h.part DESC, h.place DESC`)

// Timeline reads up to limit rows of the history of an instance, oldest first, behind a place.
func (s *Store) Timeline(ctx context.Context, id int64, behind HistoryPlace, limit int) ([]Happened, error) {
	if behind.Row == "" {
		behind.Row = "(0,0)"
	}
	return happened(id, func(read func(pgx.Rows) error) error {
		return s.one(ctx, fastLock, timelineSQL, read, id, behind.At, behind.Table, behind.Row, limit)
	})
}

// TimelineBack is Timeline, newest first: it reads what is before a place, and with the zero place
// from the newest row on, with documents of so many bytes.
func (s *Store) TimelineBack(ctx context.Context, id int64, before HistoryPlace, limit int, bytes int64) ([]Happened, error) {
	if before.Row == "" {
		before.Row = "(0,0)"
	}
	return happened(id, func(read func(pgx.Rows) error) error {
		return s.one(ctx, fastLock, timelineBackSQL, read, id, timeOf(before.At), before.Table, before.Row, limit, bytes)
	})
}

// happened sends a statement, and reads the rows of the history that it returns.
func happened(id int64, send func(read func(pgx.Rows) error) error) (page []Happened, err error) {
	err = send(func(rows pgx.Rows) error {
		for rows.Next() {
			var h Happened
			var diff, before, after *string
			if err := rows.Scan(&h.At, &h.Instance, &h.Visit, &h.Took, &h.Waited, &h.Attempt, &h.Version, &h.Kind, &h.Worker, &h.Machine, &h.Step,
				&h.To, &h.Failure, &h.Error, &h.Actor, &h.Reason, &h.Subject, &diff, &before, &after, &h.LeftOut, &h.place.Table, &h.place.Row); err != nil {
				return err
			}
			h.Diff, h.Before, h.After, h.place.At = rawText(diff), rawText(before), rawText(after), h.At
			page = append(page, h)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of instance %d: %w", id, err)
	}
	return page, nil
}

func rawText(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}

// HistoryFilter selects the recorded transitions of a machine in a time.
type HistoryFilter struct {
	Machine      string
	Version      int // 0: all
	Since, Until time.Time
	Most         int           // transitions; a *HistoryError if there are more
	Timeout      time.Duration // of the statement
}

// HistoryError refuses a query on more transitions than HistoryFilter.Most.
type HistoryError struct{ Most int }

func (e *HistoryError) Error() string { return fmt.Sprintf("over %d transitions", e.Most) }

// selectedText selects the transitions of a machine in a time, up to one more than a number. It
// reads the days of that time from end to end. Operators' verbs are no transitions.
//
// $1 machine $2 version $3 since $4 until $5 most
const selectedText = `WITH h AS MATERIALIZED (
  SELECT x.step, x.to_step, x.kind, x.failure, x.error, x.took, x.waited, x.at FROM {s}.history x
  WHERE x.at >= $3::timestamptz AND x.at < $4::timestamptz AND x.fsm = $1 AND ($2::int = 0 OR x.fsm_version = $2::int)
    AND x.step IS NOT NULL AND strpos(x.kind, '.') = 0
  LIMIT $5::bigint + 1)
`

// stepTimesSQL measures the steps of a machine. Rows of sweeps have neither run nor waited.
var stepTimesSQL = named("step times", selectedText+`SELECT h.step, count(*), count(*) FILTER (WHERE h.kind = 'retry'), count(*) FILTER (WHERE h.failure IS NOT NULL),
  count(*) FILTER (WHERE h.kind = 'crash'),
  coalesce(percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY h.took), '{0,0,0}'),
  coalesce(percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY h.waited), '{0,0,0}'), (SELECT count(*) FROM h)
FROM h GROUP BY h.step ORDER BY h.step`)

// stepFailuresSQL counts what goes wrong at the steps of a machine, the most frequent first, as
// many as $6.
var stepFailuresSQL = named("step failures", selectedText+`, o AS (SELECT h.step, count(*) AS n FROM h GROUP BY h.step)
SELECT h.step, h.kind, coalesce(h.failure, ''), coalesce(left(h.error, 200), ''), count(*), max(h.at), max(o.n), (SELECT sum(n)::bigint FROM o)
FROM h JOIN o ON o.step = h.step WHERE h.failure IS NOT NULL OR h.kind IN ('retry', 'crash')
GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT $6::bigint`)

// stepEdgesSQL counts the ways between steps that were really taken.
var stepEdgesSQL = named("step edges", selectedText+`SELECT h.step, coalesce(h.to_step, ''), h.kind, count(*), (SELECT count(*) FROM h)
FROM h WHERE h.to_step IS NOT NULL OR h.kind = 'done' OR h.failure IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`)

// scansSQL lets a query read the tables of whole days from end to end.
var scansSQL = named("scans", `SET LOCAL enable_seqscan = on`)

// onHistory sends a query on the history under its own limit of time. total receives the number of
// transitions that it selected.
func (s *Store) onHistory(ctx context.Context, f *HistoryFilter, query entpgx.Stmt, total *int64) error {
	err := s.pipeline(ctx, s.stmt(beginSQL, nil), s.settings(fastLock, millis(f.Timeout)),
		s.stmt(scansSQL, nil), query, s.stmt(endSQL, nil))
	if err != nil {
		return fmt.Errorf("read the history of machine %q: %w", f.Machine, err)
	}
	if *total > int64(f.Most) {
		return &HistoryError{f.Most}
	}
	return nil
}

func (f *HistoryFilter) args(more ...any) []any {
	return append([]any{f.Machine, f.Version, f.Since, f.Until, f.Most}, more...)
}

// StepTime has the times of a step, each as the 50th, 95th and 99th percentile in µs.
type StepTime struct {
	Step                           string
	Runs, Retried, Failed, Crashed int64
	Took, Waited                   []int64
}

// StepTimes measures the steps of a machine.
func (s *Store) StepTimes(ctx context.Context, f *HistoryFilter) (list []StepTime, err error) {
	var total int64
	err = s.onHistory(ctx, f, s.stmt(stepTimesSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var t StepTime
			if err := rows.Scan(&t.Step, &t.Runs, &t.Retried, &t.Failed, &t.Crashed, &t.Took, &t.Waited, &total); err != nil {
				return err
			}
			list = append(list, t)
		}
		return rows.Err()
	}, f.args()...), &total)
	return list, err
}

// StepFailure counts one way in which a step fails.
type StepFailure struct {
	Step, Kind, Failure, Error string
	Count                      int64
	Last                       time.Time
	Of                         int64 // transitions from the step
}

// StepFailures counts what goes wrong at the steps of a machine, the most frequent first.
func (s *Store) StepFailures(ctx context.Context, f *HistoryFilter, limit int) (list []StepFailure, err error) {
	var total int64
	err = s.onHistory(ctx, f, s.stmt(stepFailuresSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var x StepFailure
			if err := rows.Scan(&x.Step, &x.Kind, &x.Failure, &x.Error, &x.Count, &x.Last, &x.Of, &total); err != nil {
				return err
			}
			list = append(list, x)
		}
		return rows.Err()
	}, f.args(limit)...), &total)
	return list, err
}

// StepEdge counts how often a way from a step was taken.
type StepEdge struct {
	From, To, Kind string
	Count          int64
}

// StepEdges counts the ways between the steps of a machine that were taken.
func (s *Store) StepEdges(ctx context.Context, f *HistoryFilter) (list []StepEdge, err error) {
	var total int64
	err = s.onHistory(ctx, f, s.stmt(stepEdgesSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var x StepEdge
			if err := rows.Scan(&x.From, &x.To, &x.Kind, &x.Count, &total); err != nil {
				return err
			}
			list = append(list, x)
		}
		return rows.Err()
	}, f.args()...), &total)
	return list, err
}
