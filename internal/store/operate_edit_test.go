package store_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// copied returns the order of an Edit or a Rewind to step t, decided from the row as it is now.
func (b bench) copied(verb store.Verb, id int64) store.Order {
	b.t.Helper()
	row, err := b.Get(b.t.Context(), byID(id))
	require.NoError(b.t, err)
	return store.Order{Verb: verb, By: store.By{Actor: "ada", Reason: "why"},
		Edits: map[int64]store.Edit{id: {Version: row.Version, Visit: row.Visit, Old: row.State, New: []byte(`{"new": true}`), To: "t"}}}
}

// beside is a verb that runs beside an edit, in a separate session, and may wait for the row. Its
// answer says whether it took effect.
type besides struct {
	make func(b bench) int64
	act  func(b bench, id int64) func() bool // begins it; what it returns waits for its answer
	wait bool                                // it waits for the edit's lock; others pass the row by

	refused bool              // the edit, where the other came first
	first   map[string]string // the row, by verb, where the other came first
	second  map[string]string // and where the edit came first
	took    bool              // the other took effect, though the edit came first
}

// row describes a row in short.
func (b bench) shortly(id int64) string {
	b.t.Helper()
	return b.text(`SELECT concat_ws(' ', status, step, 'visit', visit, 'state', state, 'awaits', array_to_string(awaits, ','), 'pending', children_pending,
		CASE WHEN timed_out THEN 'timed out' END, 'signals', (SELECT count(*) FROM gendurable.signals WHERE target_id = g.id)) FROM gendurable.gen_durable g WHERE g.id = $1`, id)
}

func answered(answer bool) func() bool { return func() bool { return answer } }

var beside = map[string]besides{
	"a claim": {
		make:    func(b bench) int64 { return b.runnableOne() },
		act:     func(b bench, _ int64) func() bool { return answered(len(b.claim().Claims) == 1) },
		refused: true,
		first: map[string]string{"edit": `executing s visit 0 state {} awaits pending 0 signals 0`,
			"rewind": `executing s visit 0 state {} awaits pending 0 signals 0`},
		second: map[string]string{"edit": `runnable s visit 0 state {"new": true} awaits pending 0 signals 0`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 0`},
	},
	"a signal": {
		make: func(b bench) int64 { return b.parked("go") },
		act: func(b bench, id int64) func() bool {
			sent := b.delivering(byID(id), named("go"))
			return func() bool { return (<-sent).err == nil }
		},
		wait: true, took: true,
		first: map[string]string{"edit": `runnable s visit 0 state {"new": true} awaits go pending 0 signals 1`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 1`},
		second: map[string]string{"edit": `runnable s visit 0 state {"new": true} awaits go pending 0 signals 1`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 1`},
	},
	"the last child's end": {
		make: func(b bench) int64 {
			return b.insert(columns{"fsm": `'m'`, "step": `'s'`, "status": `'awaiting_children'`, "children_pending": `1`, "round": `3`, "visit": `3`})
		},
		act: func(b bench, id int64) func() bool {
			kid := b.kidOf(id)
			ended := make(chan bool, 1)
			go func() {
				done, err := b.Commit(b.t.Context(), me, newMark(), []store.Entry{{Claim: kid, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`1`)}}}, patient)
				ended <- err == nil && done.Applied[kid.ID]
			}()
			return func() bool { return <-ended }
		},
		wait: true, took: true,
		first: map[string]string{"edit": `runnable s visit 3 state {"new": true} awaits pending 0 signals 0`,
			"rewind": `runnable t visit 4 state {"new": true} awaits pending 0 signals 0`},
		second: map[string]string{"edit": `runnable s visit 3 state {"new": true} awaits pending 0 signals 0`,
			"rewind": `runnable t visit 4 state {"new": true} awaits pending 0 signals 0`},
	},
	"a timeout": {
		make: func(b bench) int64 {
			return b.row("status, awaits, await_deadline", "'awaiting_signal', '{go}', now() - interval '1 hour'")
		},
		act: func(b bench, _ int64) func() bool {
			out, err := b.TimeOut(b.t.Context(), 10)
			return answered(err == nil && len(out.Queues) == 1)
		},
		first: map[string]string{"edit": `runnable s visit 0 state {"new": true} awaits go pending 0 timed out signals 0`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 0`},
		second: map[string]string{"edit": `awaiting_signal s visit 0 state {"new": true} awaits go pending 0 signals 0`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 0`},
	},
	"a migration that leaves the state": {
		make: func(b bench) int64 { return b.parked("go") },
		act: func(b bench, id int64) func() bool {
			found, err := b.Unmoved(b.t.Context(), []int64{id}, "m", 1)
			require.NoError(b.t, err)
			n, _, err := b.Move(b.t.Context(), "m", 1, 2, []store.Moved{{Unmoved: found[0], Step: "s2", State: found[0].State}}, store.By{Actor: "deploy"})
			return answered(err == nil && n == 1)
		},
		refused: true,
		first: map[string]string{"edit": `awaiting_signal s2 visit 0 state {} awaits go pending 0 signals 0`,
			"rewind": `awaiting_signal s2 visit 0 state {} awaits go pending 0 signals 0`},
		second: map[string]string{"edit": `awaiting_signal s visit 0 state {"new": true} awaits go pending 0 signals 0`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 0`},
	},
	"another edit": {
		make: func(b bench) int64 { return b.parked("go") },
		act: func(b bench, id int64) func() bool {
			o := b.copied(store.Edits, id)
			o.Edits[id] = store.Edit{Version: 1, Visit: 0, Old: []byte(`{}`), New: []byte(`{"other": 1}`)}
			got := b.operating(o, id)
			return func() bool { return len((<-got).Changed) == 1 }
		},
		wait: true, refused: true,
		first: map[string]string{"edit": `awaiting_signal s visit 0 state {"other": 1} awaits go pending 0 signals 0`,
			"rewind": `awaiting_signal s visit 0 state {"other": 1} awaits go pending 0 signals 0`},
		second: map[string]string{"edit": `awaiting_signal s visit 0 state {"new": true} awaits go pending 0 signals 0`,
			"rewind": `runnable t visit 1 state {"new": true} awaits pending 0 signals 0`},
	},
}

// An edit or a rewind, decided from a copy, and whatever else changes the row, in both orders of
// their commits: the other one between copy and lock, and while the edit holds the row.
func TestEditBesideOthers(t *testing.T) {
	b := newBench(t)
	for name, other := range beside {
		for _, verb := range []store.Verb{store.Edits, store.Rewind} {
			b.exec(`DELETE FROM gendurable.signals`)
			b.exec(`DELETE FROM gendurable.gen_durable`)
			b.exec(`TRUNCATE gendurable.history`)
			id := other.make(b)
			order := b.copied(verb, id)
			require.True(t, other.act(b, id)(), name)
			got := b.operate(order, id)
			require.Equal(t, other.refused, len(got.Refused) == 1, "%s, then %s", name, verb)
			require.Equal(t, other.first[string(verb)], b.shortly(id), "%s, then %s", name, verb)

			b.exec(`DELETE FROM gendurable.signals`)
			b.exec(`DELETE FROM gendurable.gen_durable`)
			id = other.make(b)
			var answer func() bool
			between := &interloper{text: "'admin." + string(verb) + "'", act: func() {
				if answer = other.act(b, id); other.wait {
					b.waiting(1)
				}
			}}
			operator := b.beside(func(c *pgxpool.Config) { c.ConnConfig.Tracer = between })
			got = operator.operate(b.copied(verb, id), id)
			require.Len(t, got.Changed, 1, "%s, then %s", verb, name)
			require.Equal(t, other.took, answer(), "%s, then %s", verb, name)
			require.Equal(t, other.second[string(verb)], b.shortly(id), "%s, then %s", verb, name)
			require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.history WHERE instance = $1 AND kind = $2 AND actor = 'ada' AND before ->> 'state' = '{}'
				AND after -> 'state' ->> 'new' = 'true'`, id, "admin."+string(verb)))
		}
	}
}

// A step that executed when it was read, or ends between copy and lock, is no business of an edit.
func TestEditBesideAnOutcome(t *testing.T) {
	b := newBench(t)
	claim := b.executing(nil)
	order := store.Order{Verb: store.Edits, Edits: map[int64]store.Edit{}} // as the engine prepares one that executes
	require.Equal(t, []store.Refusal{{ID: claim.ID, Status: "executing", Why: store.ErrApplies}}, b.operate(order, claim.ID).Refused)
	b.outcome(claim, step.Commit{Kind: step.Next, Step: "t"})
	require.Equal(t, []store.Refusal{{ID: claim.ID, Status: "runnable", Why: store.ErrChanged}}, b.operate(order, claim.ID).Refused)

	order = b.copied(store.Rewind, claim.ID)
	again := b.claimOne()
	b.outcome(again, step.Commit{Kind: step.Next, Step: "u"})
	require.Equal(t, []store.Refusal{{ID: claim.ID, Status: "runnable", Why: store.ErrChanged}}, b.operate(order, claim.ID).Refused)

	// A claim that was lost: the fence refuses its outcome after a rewind, whose visit has moved.
	late := b.claimOne()
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, late.ID)
	require.Len(t, b.operate(b.copied(store.Rewind, late.ID), late.ID).Changed, 1)
	before := b.everything()
	done, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: late, Commit: &step.Commit{Kind: step.Done}}}, 0)
	require.NoError(t, err)
	require.Empty(t, done.Applied)
	require.Equal(t, before, b.everything())
}

// New keys are refused if they would end a join; keys, priorities and lanes of others stay right.
func TestEditKeepsWhatItDoesNotConcern(t *testing.T) {
	b := newBench(t)
	joins := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "round": `4`, "visit": `4`})
	order := b.copied(store.Edits, joins)
	order.NewKeys = true
	require.Equal(t, []store.Refusal{{ID: joins, Status: "runnable", Why: store.ErrJoins}}, b.operate(order, joins).Refused)
	order.NewKeys = false
	require.Len(t, b.operate(order, joins).Changed, 1)
	plain := b.runnableOne()
	order = b.copied(store.Edits, plain)
	order.NewKeys = true
	require.Len(t, b.operate(order, plain).Changed, 1)
	require.Equal(t, 1, b.number(`SELECT visit FROM gendurable.gen_durable WHERE id = $1`, plain))
	b.exec(`DELETE FROM gendurable.gen_durable`)

	// The head of a partition key goes back behind the next one, which is brought forward.
	head := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": `'k'`, "correlation_key": `'c'`, "correlation_scope": liveScope,
		"eligible_at": `now() - interval '1 hour'`, "deadline": `now() + interval '1 day'`})
	next := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": `'k'`, "eligible_at": `now() - interval '1 minute'`, "pick_lane": `1`})
	require.Len(t, b.operate(b.copied(store.Rewind, head), head).Changed, 1)
	require.Equal(t, next, b.claimOne().ID)
	require.Equal(t, "c k", b.text(`SELECT concat_ws(' ', correlation_guard, partition_key) FROM gendurable.gen_durable WHERE id = $1 AND deadline IS NOT NULL`, head))

	// A failed instance runs again, if its key is free.
	failed := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "status": `'failed'`, "failure": `'error'`, "finished_at": `now()`, "paused": `true`,
		"correlation_key": `'c'`, "correlation_scope": liveScope, "deadline": `now() - interval '1 day'`})
	_, err := b.Operate(t.Context(), []int64{failed}, new(b.copied(store.Rewind, failed)))
	var occupied *store.OccupiedError
	require.ErrorAs(t, err, &occupied)
	require.Equal(t, head, occupied.Occupant)
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, head)
	require.Len(t, b.operate(b.copied(store.Edits, failed), failed).Changed, 1)
	require.Equal(t, "failed", b.status(failed))
	require.Len(t, b.operate(b.copied(store.Rewind, failed), failed).Changed, 1)
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND status = 'runnable' AND NOT paused AND deadline IS NULL
		AND failure IS NULL AND finished_at IS NULL AND eligible_at > now() - interval '1 hour'`, failed))

	// A large state is recorded by its size.
	big := b.runnableOne()
	b.exec(`UPDATE gendurable.gen_durable SET state = jsonb_build_object('x', repeat('x', 10000)) WHERE id = $1`, big)
	require.Len(t, b.operate(b.copied(store.Edits, big), big).Changed, 1)
	require.Equal(t, 10009, b.number(`SELECT (before ->> 'state_bytes')::int FROM gendurable.history WHERE instance = $1 AND before -> 'state' IS NULL`, big))
}
