package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Migrate is the name of an eager migration, for the audit and for the ids of a plan.
const Migrate Verb = "migrate"

// Unmoved is a live instance of an older version, as it was read.
type Unmoved struct {
	ID      int64
	Step    string
	Status  string
	State   []byte
	visit   int64
	mark    string // "": none
	updated time.Time
}

// unmovedSQL reads live instances of one version. It locks none: moveSQL compares. $1 ids $2
// machine $3 version
const unmovedSQL = `SELECT g.id, g.step, g.status::text, g.state::text, g.visit, coalesce(g.commit_id::text, ''), g.updated_at
FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[]) AND g.fsm = $2 AND g.fsm_version = $3 AND g.finished_at IS NULL ORDER BY g.id`

// Unmoved reads those of some instances that are live and of a version of a machine.
func (s *Store) Unmoved(ctx context.Context, ids []int64, machine string, version int) (all []Unmoved, err error) {
	err = s.one(ctx, fastLock, "unmoved", unmovedSQL, func(rows pgx.Rows) error {
		var u Unmoved
		var state string
		_, err := pgx.ForEachRow(rows, []any{&u.ID, &u.Step, &u.Status, &state, &u.visit, &u.mark, &u.updated}, func() error {
			u.State = []byte(state)
			all = append(all, u)
			return nil
		})
		return err
	}, ids, machine, version)
	if err != nil {
		return nil, fmt.Errorf("read %d instances to migrate: %w", len(ids), err)
	}
	return all, nil
}

// Moved is an instance with what it becomes.
type Moved struct {
	Unmoved

	Step  string
	State []byte
}

// moveSQL brings instances to a newer version. It compares and sets: a row counts only if nobody
// has written to it since it was read (visit, mark, updated_at and version are as they were) and no
// worker executes it. Lock and UPDATE are one statement, so what somebody has locked is left out
// and waited for by nobody, and a claim or an outcome comes before it or after it: before, and the
// row is executing or has another mark; after, and the claim reads the newer version. The mark is
// new, so that whoever else compares (an edit) sees that the row has changed.
//
// The row goes in front, unless it waits behind its key: it stood aside, or in line, for its old
// step. What was applied is what is recorded.
//
// $1 ids $2 visits $3 marks $4 times $5 steps $6 states $7 from $8 to $9 mark $10 actor $11 reason
// $12 machine
const moveSQL = `WITH moved AS (
  UPDATE {s}.gen_durable g SET fsm_version = $8::int, step = u.step, state = u.state::jsonb, commit_id = $9::uuid,
    pick_lane = CASE WHEN g.pick_lane = 1 THEN 1 ELSE 0 END, gate = NULL, place = NULL
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS visit, unnest($3::text[]) AS mark, unnest($4::timestamptz[]) AS updated,
    unnest($5::text[]) AS step, unnest($6::text[]) AS state) u
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step AS was FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE g.ctid = l.tid AND g.fsm = $12 AND g.fsm_version = $7::int AND g.visit = u.visit AND coalesce(g.commit_id::text, '') = u.mark
    AND g.updated_at = u.updated AND coalesce(g.status NOT IN ('executing', 'done', 'failed'), false)
  RETURNING g.id, g.visit, g.attempt, g.fsm, g.step, l.was),
recorded AS (
  INSERT INTO {s}.history (at, instance, visit, attempt, fsm_version, kind, fsm, step, actor, reason, before, after)
  SELECT clock_timestamp(), m.id, m.visit, m.attempt, $8::int, 'admin.migrate', m.fsm, m.step, $10::text, $11::text,
    jsonb_build_object('version', $7::int, 'step', m.was), jsonb_build_object('version', $8::int, 'step', m.step) FROM moved m)
SELECT m.id FROM moved m`

// Move brings instances of a machine from one version to another, and records that. It returns the
// number of those that it moved: others have changed since they were read, or somebody has them
// locked. An instance that Postgres refuses to change is in refused.
func (s *Store) Move(ctx context.Context, machine string, from, to int, all []Moved, by By) (moved int, refused []Refused, err error) {
	move := func(all []Moved) error {
		n := len(all)
		ids, visits, marks := make([]int64, n), make([]int64, n), make([]string, n)
		times, steps, states := make([]time.Time, n), make([]string, n), make([]string, n)
		for i, m := range all {
			ids[i], visits[i], marks[i], times[i], steps[i], states[i] = m.ID, m.visit, m.mark, m.updated, m.Step, string(m.State)
		}
		var done []int64
		err := s.transaction(ctx, slowLock, []entpgx.Stmt{s.stmt("migrate", moveSQL, readIDs(&done), ids, visits, marks, times, steps, states,
			from, to, uuid.NewString(), by.Actor, optional(by.Reason), machine)}...)
		if err == nil {
			moved += len(done)
		}
		return err
	}
	if err = move(all); blames(err) && !errors.Is(err, context.Canceled) {
		refused, err = narrow(all, move, func(m Moved, err error) Refused { return Refused{ID: m.ID, Err: err} })
	}
	if err != nil {
		return moved, refused, fmt.Errorf("migrate %d instances: %w", len(all), err)
	}
	return moved, refused, nil
}
