package store

import (
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Edit is what Edit and Rewind make of one instance, decided from a copy that was read without a
// lock.
type Edit struct {
	Version int    // of the machine, of the copy
	Visit   int64  // of the copy
	Old     []byte // its state, JSON
	New     []byte // the state that it gets
	To      string // of Rewind: the step at which it goes on

	// Redacted makes the audit keep Shown and Becomes in place of the states, nil for nothing.
	Redacted       bool
	Shown, Becomes json.RawMessage
}

// ErrJoins refuses new keys to an instance whose children join at its visit: they would join
// nothing.
var ErrJoins = errors.New("its children join at this visit, and NewKeys would end it: leave NewKeys out, or edit it after the join")

// editText is the shape of both statements. It is a compare-and-set: it changes an instance only
// if version, visit and state equal the copy's: an eager migration leaves the visit, and may leave
// the state, whose type is another all the same. An instance that executes is left alone, since
// the outcome of its step would overwrite the state. The caller has locked the rows by an earlier
// statement, so SKIP LOCKED skips none, and the join by ctid is right, as in cancelSQL. What it
// changes it records in the same statement, from its own RETURNING: an instance that was left
// alone is not recorded.
//
// $1 ids $2 visits $3 states of the copies $4 new states $5 steps $6 actor $7 reason $8 versions
// $9, $10 what the audit may keep of the old and the new states; NULL: all. Of an edit $11 new keys
func editText(verb, set string) string {
	return `WITH e AS (
  UPDATE {s}.gen_durable g SET state = u.state::jsonb, ` + set + `
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS visit, unnest($3::text[]) AS old, unnest($4::text[]) AS state,
    unnest($5::text[]) AS step, unnest($8::int[]) AS version, unnest($9::text[]) AS shown, unnest($10::text[]) AS becomes) u
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step, ` + factsWith("x", "u.shown") + ` AS before
    FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE g.ctid = l.tid AND coalesce(g.status NOT IN ('executing', 'done'), false) AND g.fsm_version = u.version
    AND g.visit = u.visit AND g.state = u.old::jsonb
  RETURNING g.id, g.visit, g.attempt, g.fsm_version, g.fsm, l.step AS left, g.step, l.before, ` + factsWith("g", "u.becomes") + ` AS after),
a AS (INSERT INTO {s}.history (at, instance, visit, attempt, fsm_version, kind, fsm, step, to_step, actor, reason, before, after)
  SELECT clock_timestamp(), e.id, e.visit, e.attempt, e.fsm_version, 'admin.` + verb + `', e.fsm, e.left, e.step, $6::text, $7::text, e.before, e.after
  FROM e)
SELECT e.id FROM e`
}

// editSQL changes nothing but the state; the visit, and so the idempotency keys, only where new
// keys are asked for. So a parked instance stays parked, with what it awaits, its round of children
// and its deadlines, and updated_at stays, from which Why reads since when it is parked.
//
// rewindSQL makes an instance runnable at another step, as progress to it would: the visit grows,
// and attempts and crashes count from 0. It waits for nothing any more. Signals stay in the inbox,
// also those that it was woken by, since nothing has consumed them. The round of children is over:
// those that live go on, also where the join would cancel the rest (losers is not armed any more),
// and their ends settle nothing, since joinSQL wants a parent that awaits children; round stays,
// and is not the visit any more, so that nothing joins. A failed instance runs again, as after a
// Retry: not paused, without a deadline that is past, and its join is not settled again.
var (
	editSQL   = named("edit", editText("edit", `visit = g.visit + CASE WHEN $11::boolean THEN 1 ELSE 0 END`))
	rewindSQL = named("rewind", editText("rewind", `step = u.step, status = 'runnable', visit = g.visit + 1, awaits = NULL, timed_out = false,
    await_deadline = NULL, children_pending = 0, losers = CASE WHEN g.status = 'awaiting_children' THEN nullif(array_remove(g.losers, g.round), '{}')
      ELSE g.losers END, attempt = 0, crashes = 0, last_error = NULL, failure = NULL, finished_at = NULL, pick_lane = {lane front},
    gate = NULL, place = NULL, seat = NULL, run_gate = CASE WHEN g.status <> 'failed' THEN g.run_gate END,
    run_place = CASE WHEN g.status <> 'failed' THEN g.run_place END, paused = g.paused AND g.status <> 'failed',
    deadline = CASE WHEN g.status <> 'failed' OR g.deadline > (SELECT clock_timestamp()) THEN g.deadline END,
    eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp())`))
)

// edits returns the statement of an Edit or a Rewind.
func (s *Store) edits(todo []*operated, o *Order, read func(pgx.Rows) error) entpgx.Stmt {
	n := len(todo)
	ids, visits, versions := make([]int64, n), make([]int64, n), make([]int32, n)
	old, states, steps := make([]string, n), make([]string, n), make([]string, n)
	var shown, becomes []*string
	for i, r := range todo {
		e := o.Edits[r.id]
		ids[i], visits[i], versions[i] = r.id, e.Visit, int32(e.Version) //nolint:gosec // a version fits the column
		old[i], states[i], steps[i] = string(e.Old), string(e.New), e.To
		if e.Redacted {
			shown, becomes = put(shown, i, jsonText(e.Shown), nil), put(becomes, i, jsonText(e.Becomes), nil)
		}
	}
	args := []any{ids, visits, old, states, steps, o.Actor, optional(o.Reason), versions, shown, becomes}
	if o.Verb == Rewind {
		return s.stmt(rewindSQL, read, args...)
	}
	return s.stmt(editSQL, read, append(args, o.NewKeys)...)
}
