package soak

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed record.sql
var recordSQL string

//go:embed checks.sql
var checksSQL string

// load brings the processes' log into the database, and makes the checks.
func load(ctx context.Context, db *pgxpool.Pool, path string) error {
	var rows [][]any
	flush := func() error {
		_, err := db.CopyFrom(ctx, pgx.Identifier{"soak", "event"}, []string{"seq", "at", "process", "kind", "id", "visit", "token", "machine",
			"version", "step", "attempt", "crashes", "n", "label", "key", "idempotency", "outcome", "to_step", "to_n", "signals", "tags", "target",
			"tag", "dedup", "duplicate", "children", "count", "detail", "policy"}, pgx.CopyFromRows(rows))
		rows = rows[:0]
		return err
	}
	err := readJournal(path, func(seq int64, e *event) error {
		rows = append(rows, []any{seq, time.UnixMicro(e.At), e.Process, e.Kind, given(e.ID), e.Visit, given(e.Token), given(e.Machine),
			given(e.Version), given(e.Step), e.Attempt, e.Crashes, e.N, given(e.Label), given(e.Key), given(e.Idempotency),
			given(e.Outcome), given(e.To), e.ToN, e.Signals, e.Tags, given(e.Target), given(e.Tag), given(e.Dedup), e.Duplicate, e.Children,
			given(e.Count), given(e.Detail), e.Policy})
		if len(rows) < 10_000 {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("load the log: %w", err)
	}
	if _, err := db.Exec(ctx, claimTokensSQL); err != nil {
		return fmt.Errorf("find the claims of the fencing tokens in the log: %w", err)
	}
	return prepare(ctx, db)
}

// claimTokensSQL keeps the fencing tokens that steps saw, and replaces them by the claim tokens of
// the tables, by which the checks join. A claim of a keyed instance has two tokens: it draws the
// fencing token later, so that lies between this claim's token and the token of the instance's next
// one.
const claimTokensSQL = `
CREATE INDEX ON soak.change (id, token) WHERE status = 'executing';
ANALYZE soak.change, soak.event;
UPDATE soak.event e SET fence = e.token WHERE e.token IS NOT NULL;
UPDATE soak.event e SET token = coalesce((SELECT max(c.token) FROM soak.change c
  WHERE c.id = e.id AND c.status = 'executing' AND c.token <= e.token), e.token)
WHERE e.token IS NOT NULL AND e.id IN (SELECT c.id FROM soak.change c WHERE c.key IS NOT NULL);
UPDATE soak.booking b SET token = coalesce((SELECT max(c.token) FROM soak.change c
  WHERE c.id = b.id AND c.status = 'executing' AND c.token <= b.token), b.token)
WHERE b.id IN (SELECT c.id FROM soak.change c WHERE c.key IS NOT NULL)`

// prepare makes the checks over the records.
func prepare(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, checksSQL); err != nil {
		return fmt.Errorf("make the checks: %w", err)
	}
	return nil
}

// given returns nil for a zero value, which the log leaves out.
func given[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const checkPrefix = "check_"

// checks lists the views, by name without the prefix, in the order in which they were made.
func checks(ctx context.Context, db querier) ([]string, error) {
	rows, err := db.Query(ctx, `SELECT substr(relname, $1) FROM pg_class
		WHERE relnamespace = 'soak'::regnamespace AND relkind = 'v' AND relname LIKE $2 ORDER BY oid`, len(checkPrefix)+1, checkPrefix+"%")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// violations returns what a check finds, at most so many.
func violations(ctx context.Context, db querier, check string, most int) ([]string, error) {
	rows, err := db.Query(ctx, fmt.Sprintf("SELECT violation FROM soak.%s LIMIT %d", checkPrefix+check, most))
	if err == nil {
		var found []string
		if found, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("check %s: %w", check, err)
}

// aboutTime is the check that a machine which stands still can violate, since it bounds how soon
// others notice something.
const aboutTime = "paused_queue"

// shown is how many violations of a check are printed.
const shown = 5

// verify runs every check and prints what it finds.
func (s *soak) verify(ctx context.Context) error {
	names, err := checks(ctx, s.chaos.admin)
	if err != nil {
		return err
	}
	var broken []string
	for _, name := range names {
		found, err := violations(ctx, s.chaos.admin, name, 1000)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		broken = append(broken, name)
		s.say("VIOLATED %s, %d times, first:", name, len(found))
		for _, v := range found[:min(shown, len(found))] {
			s.say("    %s", v)
		}
	}
	if slices.Equal(broken, []string{aboutTime}) {
		return late("violated: %s", aboutTime)
	}
	if len(broken) > 0 {
		return fmt.Errorf("violated: %s", strings.Join(broken, ", "))
	}
	s.say("%d checks, no violation", len(names))
	return nil
}

// recoverySQL computes how long killed steps took to run again, in seconds: from the end of the
// process to the beginning of the next run. It leaves out steps that had other reasons to wait: a
// second loss of one visit, which the reaper delays; times in which Postgres was away, refused to
// write or held the reapers off; acts of an operator on the instance or its queue; held instances;
// instances that wait for a place; and keyed instances while a stopped process or another session
// may have held the key.
const recoverySQL = `
WITH lost AS (
  SELECT r.id, r.key, o.queue, r.died_at, o.seq, o.old_crashes FROM soak.run r
  JOIN soak.outcome o ON o.id = r.id AND o.old_token = r.token AND o.kind = 'reap' AND o.old_visit = r.visit
  JOIN soak.event f ON f.kind = 'fault' AND f.detail = 'SIGKILL' AND f.label = r.process
  WHERE r.interrupted),
again AS MATERIALIZED (
  SELECT l.*, n.at FROM lost l CROSS JOIN LATERAL (
    SELECT e.at FROM soak.event e JOIN soak.change c ON c.id = e.id AND c.token = e.token
    WHERE e.kind = 'started' AND e.id = l.id AND c.seq > l.seq AND c.status = 'executing' ORDER BY e.seq LIMIT 1) n),
away(since, until, detail, queue, ids) AS MATERIALIZED (
  SELECT p.at, u.at, 'paused', p.label, NULL::bigint[] FROM soak.event p CROSS JOIN LATERAL (
    SELECT min(x.at) AS at FROM soak.event x WHERE x.kind = 'resuming' AND x.label = p.label AND x.seq > p.seq) u WHERE p.kind = 'paused'
  UNION ALL
  SELECT f.at AS since, (SELECT min(h.at) FROM soak.event h WHERE h.kind = 'healed' AND h.detail = f.detail AND h.label IS NOT DISTINCT FROM f.label
    AND h.seq > f.seq) AS until, f.detail, NULL, f.children FROM soak.event f WHERE f.kind = 'fault')
SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY s), 0), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY s), 0),
  coalesce(max(s), 0)
FROM (SELECT extract(epoch FROM a.at - a.died_at)::float8 AS s FROM again a
  WHERE a.old_crashes = 0 AND a.id NOT IN (SELECT o.id FROM soak.operation o) AND a.id NOT IN (SELECT h.id FROM soak.holding h WHERE h.kind <> 'begins') AND NOT EXISTS (SELECT FROM away w WHERE w.since < a.at AND w.until + $1 > a.died_at
    AND (w.detail IN ('restart of Postgres', 'read-only') OR w.queue = a.queue OR a.id = ANY(w.ids)
      OR (w.detail LIKE 'SIGSTOP%' OR w.ids IS NOT NULL) AND a.key IS NOT NULL))) t`

// recovered prints how fast the fleet recovered from kills, and applies the bound if Recovery is
// set.
func (s *soak) recovered(ctx context.Context) error {
	var count int64
	var half, p99, most float64
	holdOff := 2*heartbeat + reap
	if err := s.chaos.admin.QueryRow(ctx, recoverySQL, holdOff).Scan(&count, &half, &p99, &most); err != nil {
		return fmt.Errorf("measure the recovery: %w", err)
	}
	bound := lease + reap + pollMax + time.Second
	s.say("recovery of %d killed steps: median %.1f s, p99 %.1f s (bound %v), longest %.1f s", count, half, p99, bound, most)
	switch {
	case !s.o.Recovery:
		return nil
	case count == 0:
		return fmt.Errorf("no killed step whose recovery could be measured")
	case p99 > bound.Seconds():
		return late("recovery p99 is %.1f s, over %v", p99, bound)
	}
	return nil
}
