package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// The history has a row for each transition of a recorded machine. The statement that applies an
// outcome appends its row: the fenced UPDATE becomes a CTE, and the INSERT takes its rows from
// what that returns. So the two cannot differ, whatever else happens. A stale outcome updates
// nothing and appends nothing, one that is left out because its row is locked is appended when it
// is applied, and a rollback leaves neither. The INSERT locks no row and waits for no lock.
//
// A batch without a recorded entry sends the statements without a history.

// Record makes the history keep an outcome.
type Record struct {
	Took  time.Duration   // how long the step ran
	Ahead bool            // the step ran under a claim that was kept, so it waited for none
	Diff  json.RawMessage // the merge patch from the state before to the one after; nil: not kept
}

// errorMost bounds the text of an error in the history. The whole one is in the instance.
const errorMost = "1024"

// historyInto begins the INSERT of a row. Its SELECT must give these columns.
const historyInto = `INSERT INTO {s}.history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT `

// history is what a fenced UPDATE has that its form without a history has not, or in its place. u
// is the outcome, g its row.
type history struct {
	open   string // in front of the UPDATE
	arrays string // further columns of t, the outcomes as they were sent
	lock   string // locks the row, in the list of u
	from   string // ends u
	tid    string // of the locked row
	end    string // behind RETURNING g.id
}

var unrecorded = history{
	open: "\n",
	lock: `,
    ` + lockText + ` AS tid`,
	from: ` OFFSET 0) u`,
	tid:  `u.tid`,
}

// recordedAs makes a fenced UPDATE append to the history as well. Its arrays have, of each outcome,
// how long its step ran in µs (NULL: not recorded), whether it ran ahead, and its diff. kind, to,
// failure and err are SQL expressions for the columns of these names.
//
// What the row was before the update comes from the subselect that locks it: the step that was
// left, its attempt, when it was claimed (updated_at) and when it had been due. So that one is a
// join here, since it has several columns.
func recordedAs(p *parameters, kind, to, failure, err string) history {
	return history{
		open:   ",\nh AS (",
		arrays: `, unnest(` + p.next() + `::bigint[]) AS took, unnest(` + p.next() + `::boolean[]) AS ahead, unnest(` + p.next() + `::text[]) AS diff`,
		from: `) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step, x.attempt, x.updated_at, x.eligible_at
  FROM {s}.gen_durable x WHERE x.id = u.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) l`,
		tid: `l.tid`,
		end: `, g.updated_at AS at, u.visit, u.took, CASE WHEN coalesce(u.ahead, false) THEN 0
    ELSE greatest(0, (date_part('epoch', l.updated_at - l.eligible_at) * 1000000)::bigint) END AS waited, l.attempt, g.fsm_version,
  ` + kind + ` AS kind, g.fsm, l.step AS from_step, ` + to + ` AS to_step, ` + failure + ` AS failure, ` + err + ` AS err, u.diff),
w AS (` + historyInto + `at, id, visit, took, waited, attempt, fsm_version, kind, $4::uuid, fsm, from_step, to_step, failure, left(err, ` + errorMost + `),
  diff::jsonb FROM h WHERE took >= 0)
SELECT id FROM h`,
	}
}

// trail holds the columns that a part of a batch sends for the history. They may be shorter than
// the part: unnest pads them.
type trail struct {
	took  []int64 // µs; notRecorded
	ahead []bool
	diffs []*string
}

const notRecorded = -1

// add adds the i-th entry of the part. One that unlessSQL decides is not recorded here: see
// undecidedSQL.
func (t *trail) add(i int, e *Entry) {
	r := e.Record
	if r == nil || e.Commit.Unless != nil {
		return
	}
	t.took = put(t.took, i, max(0, micros(r.Took)), notRecorded)
	if r.Ahead {
		t.ahead = put(t.ahead, i, true, false)
	}
	if r.Diff != nil {
		t.diffs = put(t.diffs, i, jsonText(r.Diff), nil)
	}
}

// put sets the i-th value of a column, and those that it skips to none.
func put[T any](column []T, i int, v, none T) []T {
	for len(column) < i {
		column = append(column, none)
	}
	return append(column, v)
}

// pick returns the statement that records if an entry asks for it.
func (t *trail) pick(plain, recording *statement) *statement {
	if t.took == nil {
		return plain
	}
	return recording
}

// args appends the columns of the history to the arguments of a statement, if it records.
func (t *trail) args(args ...any) []any {
	if t.took == nil {
		return args
	}
	return append(args, t.took, t.ahead, t.diffs)
}

// undecidedSQL appends what became of outcomes that end an instance only if no signal waits. The
// update has ended them all, and unlessSQL, before this statement, has let some go on. Both left
// this batch's mark, and hold the rows: so the rows are as committed. How long the step had waited
// is not known any more.
//
// $1 ids $2 mark $3 worker $4 visits $5 steps $6 attempts $7 took, µs $8 kinds $9 errors $10 diffs
var undecidedSQL = named("history unless", historyInto+`g.updated_at, u.id, u.visit, u.took, NULL, u.attempt, g.fsm_version,
  CASE WHEN g.visit > u.visit THEN 'next' ELSE u.kind END, $3::uuid, g.fsm, u.step, CASE WHEN g.visit > u.visit THEN g.step END,
  g.failure, CASE WHEN g.visit = u.visit THEN left(u.err, `+errorMost+`) END, u.diff::jsonb
FROM (SELECT unnest($1::bigint[]) AS id, unnest($4::bigint[]) AS visit, unnest($5::text[]) AS step, unnest($6::int[]) AS attempt,
  unnest($7::bigint[]) AS took, unnest($8::text[]) AS kind, unnest($9::text[]) AS err, unnest($10::text[]) AS diff) u
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
WHERE g.commit_id = $2::uuid`)

// undecided holds the recorded entries that unlessSQL decides.
type undecided struct {
	ids, visits, took []int64
	attempts          []int32
	steps, kinds      []string
	errs, diffs       []*string
}

func (d *undecided) add(e *Entry) {
	c, o, r := e.Claim, e.Commit, e.Record
	if r == nil {
		return
	}
	d.ids, d.visits, d.took = append(d.ids, c.ID), append(d.visits, c.Visit), append(d.took, max(0, micros(r.Took)))
	d.attempts = append(d.attempts, int32(c.Attempt)) //nolint:gosec // as in the row
	d.steps, d.kinds = append(d.steps, c.Step), append(d.kinds, string(o.Kind))
	d.errs, d.diffs = append(d.errs, optional(o.Err)), append(d.diffs, jsonText(r.Diff))
}

// sweptInto ends a sweep that also appends to the history, for instances of recorded machines: its
// UPDATE returns what it returns without a history, each with a name, and then this. names are
// those names. worker, kind, attempt and err are SQL expressions.
func sweptInto(names, worker, kind, attempt, err string) string {
	return `, g.updated_at AS at, g.visit, ` + attempt + ` AS attempt, g.fsm_version, g.fsm, g.step,
  ` + worker + ` AS lost, g.failure, ` + err + ` AS err),
w AS (` + historyInto + `h.at, h.id, h.visit, NULL, NULL, h.attempt, h.fsm_version, ` + kind + `, CASE WHEN h.lost ~ '^[0-9a-f-]{36}$' THEN h.lost::uuid END,
    h.fsm, h.step, NULL, h.failure, left(h.err, ` + errorMost + `), NULL
  FROM h JOIN {s}.recorded_machines r ON r.machine = h.fsm)
SELECT ` + names + ` FROM h`
}

var (
	// recordSQL notes which machines are recorded. $1 their names
	recordSQL = named("record machines", `INSERT INTO {s}.recorded_machines (machine) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`)
	// unrecordSQL forgets machines. $1 their names
	unrecordSQL = named("forget machines", `DELETE FROM {s}.recorded_machines r WHERE r.machine = ANY($1::text[])`)
)

// SetRecorded notes which of a process' machines are recorded, so that the sweeps of all processes
// record what they do to their instances. They learn of it by their polls. StoreDefinitions says
// which are noted.
func (s *Store) SetRecorded(ctx context.Context, recorded, others []string) error {
	var stmts []entpgx.Stmt
	if len(recorded) > 0 {
		stmts = append(stmts, s.stmt(recordSQL, nil, recorded))
	}
	if len(others) > 0 {
		stmts = append(stmts, s.stmt(unrecordSQL, nil, others))
	}
	if err := s.transaction(ctx, slowLock, stmts...); err != nil {
		return fmt.Errorf("store which machines have a history: %w", err)
	}
	if len(recorded) > 0 {
		s.recording.Store(true)
	}
	return nil
}

// rollSQL makes the partitions of the days ahead, and drops the partitions of days past keep. $1
// is keep in µs.
var rollSQL = named("roll history", `SELECT made, dropped, refused, coalesce(because, '') FROM {s}.gen_durable_roll_history($1::bigint * interval '1 microsecond')`)

// Rolled is what a call of RollHistory did.
type Rolled struct {
	Made    int `json:"made"` // partitions
	Dropped int `json:"dropped"`
	// Refused counts what Postgres refuses to move or to remove: a row, all rows of a moment, or the
	// table of a day. Because is the first error. Nothing else waits for it.
	Refused int    `json:"refused"`
	Because string `json:"because"`
}

// RollHistory makes the history's partitions for the days ahead, and removes the days that are
// older than keep. It passes over locked tables, and rows that Postgres refuses to move. In a
// distributed schema, Citus does it at its coordinator.
func (s *Store) RollHistory(ctx context.Context, keep time.Duration) (out Rolled, err error) {
	if s.rendered.Load().distributed() {
		return s.rollAtCoordinator(ctx, keep)
	}
	err = s.one(ctx, fastLock, rollSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&out.Made, &out.Dropped, &out.Refused, &out.Because}, func() error { return nil })
		return err
	}, micros(keep))
	if err != nil {
		return Rolled{}, fmt.Errorf("make the partitions of the history: %w", err)
	}
	return out, nil
}

// rollThereSQL calls the function of rollSQL at the coordinator, on a connection between the
// nodes. The owner does not enter for it: Citus takes the locks of DDL there, and a move's. $1
// keep in µs.
var rollThereSQL = named("roll history", `SELECT c.success, c.result FROM pg_catalog.run_command_on_coordinator(
  format('SELECT row_to_json(r) FROM {s}.gen_durable_roll_history(%L) r', $1::bigint * interval '1 microsecond')) c`, "at the coordinator")

func (s *Store) rollAtCoordinator(ctx context.Context, keep time.Duration) (out Rolled, err error) {
	var done bool
	var result string
	err = s.pipeline(ctx, s.stmt(rollThereSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&done, &result}, func() error { return nil })
		return err
	}, micros(keep)))
	if err == nil && !done {
		err = errors.New(result)
	}
	if err == nil {
		err = json.Unmarshal([]byte(result), &out)
	}
	if err != nil {
		return Rolled{}, fmt.Errorf("make the partitions of the history at the coordinator of Citus: %w", err)
	}
	return out, nil
}
