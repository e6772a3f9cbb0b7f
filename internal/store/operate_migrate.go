package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// Migrate is the name of an eager migration, for the audit and for the ids of a plan.
const Migrate Verb = "migrate"

// Unmoved is a live instance of an older version, as it was read.
type Unmoved struct {
	ID     int64
	Step   string
	Status string
	State  []byte

	written string // the transaction that wrote this version of the row: its xmin
}

// unmovedSQL reads live instances of one version. It locks none: moveSQL compares. $1 ids $2
// machine $3 version
var unmovedSQL = named("unmoved", `SELECT g.id, g.step, g.status::text, g.state::text, g.xmin::text
FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[]) AND g.fsm = $2 AND g.fsm_version = $3 AND g.finished_at IS NULL ORDER BY g.id`)

// Unmoved reads, of some instances, those that are live and of a version of a machine.
func (s *Store) Unmoved(ctx context.Context, ids []int64, machine string, version int) (all []Unmoved, err error) {
	err = s.one(ctx, fastLock, unmovedSQL, func(rows pgx.Rows) error {
		var u Unmoved
		var state string
		_, err := pgx.ForEachRow(rows, []any{&u.ID, &u.Step, &u.Status, &state, &u.written}, func() error {
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

// unconverted is the condition that the row g is paused since its state could not be converted.
const unconverted = `(g.paused AND coalesce(starts_with(g.last_error, '` + step.Unconverted + `'), false))`

// moveSQL brings instances to a newer version. It compares and sets: a row counts only if it is the
// very version that was read, which its xmin tells: each UPDATE of a row writes a version with the
// xmin of its transaction, and a row that is only locked keeps it. So it overwrites no claim, no
// outcome and no edit, which changes nothing but the state. Lock and UPDATE are one statement: a
// locked row is left out, without waiting, and other writes to the row come before it or after it:
// before, and the row has another xmin; after, and a claim reads the newer version, an edit finds
// another version than its copy's.
//
// The row goes in front, unless it waits behind its key: it stood aside, or in line, for its old
// step. A row that is paused since it could not be converted has been converted now: its pause
// ends as by resumeSQL. A pause of an operator stays. The record has exactly the applied rows.
//
// $1 ids $2 xmins $3 steps $4 states $5 from $6 to $7 actor $8 reason $9 machine
var moveSQL = named("migrate", `WITH moved AS (
  UPDATE {s}.gen_durable g SET fsm_version = $6::int, step = u.step, state = u.state::jsonb,
    paused = g.paused AND NOT `+unconverted+`, last_error = CASE WHEN NOT `+unconverted+` THEN g.last_error END,
    pick_lane = CASE WHEN g.pick_lane = {lane key} AND NOT `+unconverted+` THEN {lane key} ELSE `+frontAgain+` END, gate = NULL, place = NULL
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::text[])::xid AS written, unnest($3::text[]) AS step, unnest($4::text[]) AS state) u
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step AS was FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE g.ctid = l.tid AND g.xmin = u.written AND g.fsm = $9 AND g.fsm_version = $5::int
    AND coalesce(g.status NOT IN ('executing', 'done', 'failed'), false)
  RETURNING g.id, g.visit, g.attempt, g.fsm, g.step, l.was),
recorded AS (
  INSERT INTO {s}.history (at, instance, visit, attempt, fsm_version, kind, fsm, step, actor, reason, before, after)
  SELECT clock_timestamp(), m.id, m.visit, m.attempt, $6::int, 'admin.migrate', m.fsm, m.step, $7::text, $8::text,
    jsonb_build_object('version', $5::int, 'step', m.was), jsonb_build_object('version', $6::int, 'step', m.step) FROM moved m)
SELECT m.id FROM moved m`)

// Move brings instances of a machine from one version to another, and records that. It returns the
// number of those that it moved: others have changed since they were read, or are locked. An
// instance that Postgres refuses to change is in refused.
func (s *Store) Move(ctx context.Context, machine string, from, to int, all []Moved, by By) (moved int, refused []Refused, err error) {
	move := func(all []Moved) error {
		n := len(all)
		ids, written, steps, states := make([]int64, n), make([]string, n), make([]string, n), make([]string, n)
		for i, m := range all {
			ids[i], written[i], steps[i], states[i] = m.ID, m.written, m.Step, string(m.State)
		}
		var done []int64
		err := s.transaction(ctx, slowLock, []entpgx.Stmt{s.stmt(moveSQL, readIDs(&done), ids, written, steps, states,
			from, to, by.Actor, optional(by.Reason), machine)}...)
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
