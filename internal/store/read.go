package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// ErrNotFound means that the instance to read does not exist: it never did, or the GC deleted it.
var ErrNotFound = errors.New("gendurable: no such instance")

// Instance is a row in the form that hosts read.
type Instance struct {
	ID             int64
	Machine        string
	Version        int
	Step           string
	Queue          string
	Priority       int
	Status         string
	State          json.RawMessage
	Result         json.RawMessage // nil unless done
	Attempt        int
	Crashes        int
	Visit          int64
	Failure        string // "" unless failed
	LastError      string
	CorrelationKey string // "": none
	PartitionKey   string // "": none
	Paused         bool
	EligibleAt     time.Time
	InsertedAt     time.Time
	FinishedAt     time.Time // zero unless terminal
	Deadline       time.Time // zero: none
	Labels         map[string]string
}

const instanceColumns = `g.id, g.fsm, g.fsm_version, g.step, g.queue, g.priority, g.status::text, g.state::text, g.result::text, g.attempt,
  g.crashes, g.visit, g.failure, g.last_error, g.correlation_key, g.partition_key, g.paused, g.eligible_at, g.inserted_at, g.finished_at, g.deadline,
  g.labels::text`

// scanInstance reads instanceColumns, after the columns for before.
func scanInstance(rows pgx.Rows, before ...any) (*Instance, error) {
	var i Instance
	var state, result, failure, lastError, correlation, partition *string
	var finished, deadline *time.Time
	var labels []byte
	if err := rows.Scan(append(before, &i.ID, &i.Machine, &i.Version, &i.Step, &i.Queue, &i.Priority, &i.Status, &state, &result, &i.Attempt,
		&i.Crashes, &i.Visit, &failure, &lastError, &correlation, &partition, &i.Paused, &i.EligibleAt, &i.InsertedAt, &finished, &deadline,
		&labels)...); err != nil {
		return nil, err
	}
	i.State, i.Result = raw(state), raw(result)
	i.Failure, i.LastError = value(failure), value(lastError)
	i.CorrelationKey, i.PartitionKey, i.FinishedAt = value(correlation), value(partition), value(finished)
	i.Deadline, i.Labels = value(deadline), own[map[string]string](labels)
	return &i, nil
}

const getByIDSQL = `SELECT ` + instanceColumns + ` FROM {s}.gen_durable g WHERE g.id = $1::bigint`

// getByKeySQL goes by the guard, which holds the key only while the instance occupies it. An
// instance that has left its scope can be found by id alone.
const getByKeySQL = `SELECT ` + instanceColumns + ` FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text`

// Get reads an instance. It returns ErrNotFound if no instance has that address.
func (s *Store) Get(ctx context.Context, of Address) (*Instance, error) {
	var found *Instance
	read := func(rows pgx.Rows) (err error) {
		for rows.Next() {
			if found, err = scanInstance(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	var err error
	if of.Key == "" {
		err = s.one(ctx, fastLock, "get by id", getByIDSQL, read, of.ID)
	} else {
		err = s.one(ctx, fastLock, "get by key", getByKeySQL, read, of.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", of, err)
	}
	if found == nil {
		return nil, fmt.Errorf("get %s: %w", of, ErrNotFound)
	}
	return found, nil
}

// endedSQL finds the ended ones among all instances that anyone waits for. LATERAL … OFFSET 0
// leaves the planner the primary key only: for a join it might walk all finished rows instead
// (T98).
const endedSQL = `
SELECT u.id FROM unnest($1::bigint[]) AS u(id)
LEFT JOIN LATERAL (SELECT x.status FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE g.status IS NULL OR g.status IN ('done', 'failed')`

// Ended returns those of the ids whose instance is terminal or does not exist.
func (s *Store) Ended(ctx context.Context, ids []int64) ([]int64, error) {
	var ended []int64
	err := s.one(ctx, fastLock, "ended", endedSQL, readIDs(&ended), ids)
	if err != nil {
		return nil, fmt.Errorf("look which of %d instances have ended: %w", len(ids), err)
	}
	return ended, nil
}

// roundSQL has no LIMIT: with one, the planner may walk the primary key in search of the parent's
// rows.
const roundSQL = `SELECT g.id FROM {s}.gen_durable g WHERE g.parent_id = $1::bigint AND g.parent_round = $2::bigint ORDER BY g.id`

// childrenSQL reads children up to the first that exceeds the page: see signalPage. $1 ids $2 bytes
const childrenSQL = `
SELECT q.id, q.fsm, q.fsm_version, q.status::text, q.state::text, q.result::text, coalesce(q.failure, ''), coalesce(q.last_error, '')
FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS through FROM (
    SELECT g.id, g.fsm, g.fsm_version, g.status, g.state, g.result, g.failure, g.last_error, 200 +
      pg_column_size(g.state) * CASE WHEN pg_column_compression(g.state) IS NULL THEN 1 ELSE 4 END + coalesce(pg_column_size(g.last_error), 0) +
      coalesce(pg_column_size(g.result) * CASE WHEN pg_column_compression(g.result) IS NULL THEN 1 ELSE 4 END, 0) AS size
    FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[])) p) q
WHERE q.through - q.size < $2::bigint ORDER BY q.id`

// Round lists the children of one round of an instance in spawn order, which is the order of their
// ids. It lists neither children of earlier rounds nor those that were dropped, which the claim
// brings.
func (s *Store) Round(ctx context.Context, parent, round int64) (ids []int64, err error) {
	if err := s.one(ctx, fastLock, "read round", roundSQL, readIDs(&ids), parent, round); err != nil {
		return nil, fmt.Errorf("read children of instance %d, round %d: %w", parent, round, err)
	}
	return ids, nil
}

// Children reads the first children of a round, at most a page of them, and returns in behind the
// ids after these. It leaves out children that the GC has deleted.
func (s *Store) Children(ctx context.Context, ids []int64) (page []step.Child, behind []int64, err error) {
	now := ids[:min(len(ids), pageRows)]
	if err := s.one(ctx, fastLock, "read children", childrenSQL, readChildren(&page), now, pageBytes); err != nil {
		return nil, nil, fmt.Errorf("read %d children: %w", len(now), err)
	}
	if n := len(page); n > 0 {
		i, _ := slices.BinarySearch(now, page[n-1].ID)
		return page, ids[i+1:], nil
	}
	return nil, ids[len(now):], nil
}

func readChildren(into *[]step.Child) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var c step.Child
			var state, result *string
			if err := rows.Scan(&c.ID, &c.Machine, &c.Version, &c.Status, &state, &result, &c.Failure, &c.LastError); err != nil {
				return err
			}
			c.State, c.Result = raw(state), raw(result)
			*into = append(*into, c)
		}
		return rows.Err()
	}
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

const durabilitySQL = `SELECT current_setting('fsync'), current_setting('synchronous_commit')`

// Durability returns the settings by which Postgres may lose what it has acknowledged (T38). It
// returns none if Postgres loses nothing.
func (s *Store) Durability(ctx context.Context) (unsafe []string, err error) {
	err = s.db.Pipeline(ctx, s.stmt("durability", durabilitySQL, func(rows pgx.Rows) error {
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
		return nil, fmt.Errorf("read the settings of durability: %w", err)
	}
	return unsafe, nil
}
