package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// ErrNotFound means that the instance to read does not exist: it never did, or the GC deleted it.
var ErrNotFound = errors.New("gendurable: no such instance")

// endedSQL finds the ended ones among all instances that anyone waits for. LATERAL … OFFSET 0
// leaves the planner the primary key only: for a join it might walk all finished rows instead
// (T98).
var endedSQL = named("ended", `
SELECT u.id FROM unnest($1::bigint[]) AS u(id)
LEFT JOIN LATERAL (SELECT x.status FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE g.status IS NULL OR g.status IN ('done', 'failed')`)

// Ended returns the ids whose instance is terminal or does not exist.
func (s *Store) Ended(ctx context.Context, ids []int64) ([]int64, error) {
	var ended []int64
	err := s.one(ctx, fastLock, endedSQL, readIDs(&ended), ids)
	if err != nil {
		return nil, fmt.Errorf("check which of %d instances have ended: %w", len(ids), err)
	}
	return ended, nil
}

// restingSQL finds the instances that have ended, or have parked since a visit. It is endedSQL for
// callers who also want to know of parks. $1 ids $2 visits
var restingSQL = named("resting", `
SELECT u.n - 1 FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS u(id, past, n)
LEFT JOIN LATERAL (SELECT x.status, x.visit FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE g.status IS NULL OR g.status IN ('done', 'failed') OR g.status IN ('awaiting_signal', 'awaiting_children') AND g.visit > u.past`)

// Resting returns the indexes of those ids whose instance is terminal, does not exist, or is parked
// at a visit after the one at the same index of past.
func (s *Store) Resting(ctx context.Context, ids, past []int64) ([]int64, error) {
	var resting []int64
	if err := s.one(ctx, fastLock, restingSQL, readIDs(&resting), ids, past); err != nil {
		return nil, fmt.Errorf("check which of %d instances are parked or have ended: %w", len(ids), err)
	}
	return resting, nil
}

// Columns are the columns of an instance that hosts read.
var Columns = []string{"id", "fsm", "fsm_version", "step", "queue", "priority", "status", "state", "result", "attempt", "crashes", "visit",
	"failure", "last_error", "correlation_key", "partition_key", "paused", "eligible_at", "inserted_at", "finished_at", "deadline", "labels",
	"progress"}

// instancesSQL reads whole instances. It is no query of ent, since the GC sends it for an archive:
// a host without other reads then links nothing of ent's builders, of 370 kB. $1 ids
var instancesSQL = named("instances", `SELECT g.`+strings.Join(Columns, ", g.")+`
FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[]) ORDER BY g.id`)

// Instances reads the Columns of those ids that exist, in order of ids.
func (s *Store) Instances(ctx context.Context, ids []int64, read func(pgx.Rows) error) error {
	return s.one(ctx, fastLock, instancesSQL, read, ids)
}

// roundSQL has no LIMIT: with one, the planner may walk the primary key in search of the parent's
// rows.
const roundSQL = `SELECT g.id FROM {s}.gen_durable g WHERE g.parent_id = $1::bigint AND g.parent_round = $2::bigint ORDER BY g.id`

// childrenOf renders a statement that reads children up to the first that exceeds the page: see
// signalPage. ids and bytes are SQL. The order follows the ids, or their order in $1.
func childrenOf(ids, bytes string, asListed bool) string {
	return `
SELECT q.id, q.fsm, q.fsm_version, q.status::text, q.state::text, q.result::text, coalesce(q.failure, ''), coalesce(q.last_error, ''),
  coalesce(q.node, ''), q.retried
FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY ` + either(asListed, `array_position($1::bigint[], p.id)`, `p.id`) + ` ROWS UNBOUNDED PRECEDING) AS through FROM (
    SELECT g.id, g.fsm, g.fsm_version, g.status, g.state, g.result, g.failure, g.last_error, g.node,
      ` + retriedText("g") + ` AS retried, 200 +
      pg_column_size(g.state) * CASE WHEN pg_column_compression(g.state) IS NULL THEN 1 ELSE 4 END + coalesce(pg_column_size(g.last_error), 0) +
      coalesce(pg_column_size(g.result) * CASE WHEN pg_column_compression(g.result) IS NULL THEN 1 ELSE 4 END, 0) AS size
    FROM {s}.gen_durable g WHERE g.id = ANY(` + ids + `)) p) q
WHERE q.through - q.size < ` + bytes + ` ORDER BY ` + either(asListed, `q.through`, `q.id`)
}

// childrenSQL reads children by their ids. $1 ids $2 bytes
var childrenSQL = named("read children", childrenOf(`$1::bigint[]`, `$2::bigint`, false))

// readRoundSQL reads the ids of a round, as a separate row, and its first children. $1 parent $2
// round $3 bytes $4 rows
var readRoundSQL = named("read round", `WITH r AS MATERIALIZED (`+roundSQL+`)
SELECT f.*, NULL::bigint[] FROM (`+childrenOf(`ARRAY(SELECT r.id FROM r ORDER BY r.id LIMIT $4::int)`, `$3::bigint`, false)+`) f
UNION ALL SELECT 0, '', 0, '', NULL, NULL, '', '', '', false, ARRAY(SELECT r.id FROM r ORDER BY r.id) ORDER BY 1`)

// streamedSQL is childrenSQL for ids in another order than theirs: the order of the ends in a
// stream.
var streamedSQL = named("read streamed", childrenOf(`$1::bigint[]`, `$2::bigint`, true))

// Round reads the first children of a round of an instance, at most a page of them, and returns in
// behind the ids after these. The order is that in which they were spawned, and of their ids. The
// round has neither children of earlier rounds nor those that were dropped, which the claim brings.
func (s *Store) Round(ctx context.Context, parent, round int64) (page []step.Child, behind []int64, err error) {
	read := func(rows pgx.Rows) error {
		page, behind = nil, nil
		for rows.Next() {
			var c step.Child
			var ids []int64
			if err := scanChild(rows, &c, &ids); err != nil {
				return err
			}
			if c.ID == 0 {
				behind = ids
			} else {
				page = append(page, c)
			}
		}
		return rows.Err()
	}
	if err := s.one(ctx, fastLock, readRoundSQL, read, parent, round, pageBytes, pageRows); err != nil {
		return nil, nil, fmt.Errorf("read children of instance %d, round %d: %w", parent, round, err)
	}
	return page, behind[len(page):], nil
}

// Children reads the first children of a round, at most a page of them, and returns in behind the
// ids after these, all in the order of ids. It leaves out children that the GC has deleted.
func (s *Store) Children(ctx context.Context, ids []int64) (page []step.Child, behind []int64, err error) {
	now := ids[:min(len(ids), pageRows)]
	if slices.IsSorted(now) {
		err = s.one(ctx, fastLock, childrenSQL, readChildren(&page), now, pageBytes)
	} else {
		err = s.one(ctx, fastLock, streamedSQL, readChildren(&page), now, pageBytes)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %d children: %w", len(now), err)
	}
	if n := len(page); n > 0 {
		return page, ids[slices.Index(now, page[n-1].ID)+1:], nil
	}
	return nil, ids[len(now):], nil
}

func readChildren(into *[]step.Child) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var c step.Child
			if err := scanChild(rows, &c); err != nil {
				return err
			}
			*into = append(*into, c)
		}
		return rows.Err()
	}
}

// scanChild scans a row of childrenOf, and the statement's further columns.
func scanChild(rows pgx.Rows, c *step.Child, more ...any) error {
	var state, result *string
	into := append([]any{&c.ID, &c.Machine, &c.Version, &c.Status, &state, &result, &c.Failure, &c.LastError, &c.Node, &c.Retried}, more...)
	if err := rows.Scan(into...); err != nil {
		return err
	}
	c.State, c.Result = raw(state), raw(result)
	return nil
}

func readIDs(into *[]int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { *into = append(*into, id); return nil })
		return err
	}
}

func raw(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}

var readOnlySQL = named("read only", `SELECT current_setting('transaction_read_only')::boolean`)

// ReadOnly reports whether sessions of the pool take no writes: the server is a standby, or they
// have default_transaction_read_only. It asks one session.
func (s *Store) ReadOnly(ctx context.Context) (is bool, err error) {
	err = s.pipeline(ctx, s.stmt(readOnlySQL, func(rows pgx.Rows) error {
		is, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
		return err
	}))
	if err != nil {
		return false, fmt.Errorf("ask whether the database takes writes: %w", err)
	}
	return is, nil
}

var durabilitySQL = named("durability", `SELECT current_setting('fsync'), current_setting('synchronous_commit')`)

// Durability returns the settings by which Postgres may lose what it has acknowledged (T38). It
// returns none if Postgres loses nothing.
func (s *Store) Durability(ctx context.Context) (unsafe []string, err error) {
	err = s.pipeline(ctx, s.stmt(durabilitySQL, func(rows pgx.Rows) error {
		var fsync, commit string
		_, err := pgx.ForEachRow(rows, []any{&fsync, &commit}, func() error {
			if fsync == "off" {
				unsafe = append(unsafe, "fsync")
			}
			if commit == "off" {
				unsafe = append(unsafe, "synchronous_commit")
			}
			return nil
		})
		return err
	}))
	if err != nil {
		return nil, fmt.Errorf("read the server's settings for durable commits: %w", err)
	}
	return unsafe, nil
}
