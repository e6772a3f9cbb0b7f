package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// malformed are rows that no engine writes, but that the table's checks accept.
var malformed = map[string]columns{
	"awaits with a NULL":      {"awaits": `'{go,NULL}'`},
	"awaits of nothing":       {"awaits": `'{}'`},
	"awaits of NULL only":     {"awaits": `'{NULL}'`},
	"awaits in two dims":      {"awaits": `'{{a,b},{c,d}}'`},
	"dropped is no list":      {"dropped": `'{"i": 1}'`, "round": `3`, "visit": `3`},
	"dropped is a text":       {"dropped": `'"x"'`, "round": `3`, "visit": `3`},
	"dropped is null":         {"dropped": `'null'`, "round": `3`, "visit": `3`},
	"labels of numbers":       {"labels": `'{"a": 1}'`},
	"trace is no map":         {"trace": `'[1]'`},
	"errors are a text":       {"errors": `'"x"'`},
	"errors are null":         {"errors": `'null'`},
	"errors are an object":    {"errors": `'{"at": []}'`},
	"errors are of all kinds": {"errors": `'[1, null, "x", [], {}, {"kind": 7}, {"kind": "retry", "at": "never"}]'`},
	"attempt at its end":      {"attempt": `2147483647`},
	"crashes at their end":    {"crashes": `2147483647`},
	"unknown step":            {"step": `'no such step'`},
	"state is a number":       {"state": `'7'`},
	"state is null":           {"state": `'null'`},
	"a strange name":          {"step": `E'\t\n'''`, "partition_key": `E'\n'`, "last_error": `''`},
	"priority at its end":     {"priority": `-32768`},
	"children without round":  {"children_pending": `5`},
	"from the year dot":       {"eligible_at": `'4713-01-01 BC'`},
	"round after the visit":   {"round": `9223372036854775807`},
	"lanes and locks at once": {"locked_by": `'nobody'`, "lease_expires_at": `now() - interval '1 day'`},
}

var plain = columns{"fsm": `'m'`, "step": `'s'`}

// Rows that were inserted with psql break neither the claim of others nor their own.
func TestClaimOfMalformedRows(t *testing.T) {
	b := newBench(t)
	place := map[int64]string{}
	for name, malformation := range malformed {
		id := b.insert(plain.with(malformation))
		b.deliver(id, named("go"))
		place[id] = name
	}
	b.row("", "")
	got := b.claim(most(100))
	require.Len(t, got.Claims, len(malformed)+1)
	for _, c := range got.Claims {
		if place[c.ID] == "awaits with a NULL" {
			require.Len(t, c.Awaited, 1)
		}
		require.Empty(t, c.Dropped)
	}
	// They can also be committed.
	var batch []store.Entry
	for _, c := range got.Claims {
		batch = append(batch, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Retry, Err: "again"}})
	}
	b.commit(newMark(), false, batch...)
	require.Equal(t, 2147483647, b.number(`SELECT max(attempt) FROM gendurable.gen_durable`))
	for _, c := range got.Claims {
		b.requireErrors(c.ID, "retry again")
	}
}

// Each of the other outcomes records an error.
func TestErrorsOfMalformedRows(t *testing.T) {
	for name, verb := range map[string]func(b bench, ids []int64){
		"cancel": func(b bench, ids []int64) {
			got, err := b.Operate(t.Context(), ids, &store.Order{Verb: store.Cancel, Mark: newMark()})
			require.NoError(t, err)
			require.Len(t, got.Changed, len(ids))
		},
		"deadline": func(b bench, ids []int64) {
			b.exec(`UPDATE gendurable.gen_durable SET deadline = now()`)
			got, err := b.Expire(t.Context(), newMark(), 100)
			require.NoError(t, err)
			require.ElementsMatch(t, ids, got.Failed)
		},
		"crash": func(b bench, ids []int64) {
			b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = 'w', lease_expires_at = now() - interval '1 s'`)
			got, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 100)
			require.NoError(t, err)
			require.Equal(t, len(ids), got.Released)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var ids []int64
			for _, malformation := range malformed {
				ids = append(ids, b.insert(plain.with(malformation)))
			}
			verb(b, ids)
			for _, id := range ids {
				got, err := b.Errors(t.Context(), byID(id))
				require.NoError(t, err)
				require.Len(t, got, 1)
				require.Equal(t, name, string(got[0].Kind))
			}
		})
	}
}

func TestReapOfMalformedRows(t *testing.T) {
	b := newBench(t)
	for _, malformation := range malformed {
		b.insert(plain.with(malformation).with(columns{
			"status": `'executing'`, "locked_by": `'w'`, "lease_expires_at": `now() - interval '1 s'`}))
	}
	got, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 100)
	require.NoError(t, err)
	require.Equal(t, len(malformed), got.Released)
	require.Empty(t, got.Refused)

	id := b.executing(columns{"crashes": `2147483647`, "lease_expires_at": `now() - interval '1 s'`}).ID
	got, err = b.Reap(t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{20}}, 100)
	require.NoError(t, err)
	require.Equal(t, []int64{id}, got.Failed)
}

// T22: the reaper names a row that Postgres refuses to change, and reaps the others.
func TestReapAroundARowThatCannotChange(t *testing.T) {
	b := newBench(t)
	const expired = `now() - interval '1 s'`
	var rows []int64
	for range 5 {
		rows = append(rows, b.executing(columns{"lease_expires_at": expired}).ID)
	}
	b.exec(fmt.Sprintf(`ALTER TABLE gendurable.gen_durable ADD CHECK (id <> %d OR attempt = 0)`, rows[2]))
	got, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 100)
	require.NoError(t, err)
	require.Equal(t, 4, got.Released)
	requireRefused(t, rows[2:3], got.Refused)
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing'`))
}

// A reaper knows only the crash limits of its process' machines. It leaves a claim that is being
// committed, or whose parent is locked, for later.
func TestReapLeavesToOthers(t *testing.T) {
	b := newBench(t)
	const expired = `now() - interval '1 s'`
	limits := store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{1}}
	stranger := b.executing(columns{"fsm": `'x'`, "crashes": `50`, "lease_expires_at": expired}).ID
	unlimited := b.executing(columns{"fsm": `'m'`, "fsm_version": `2`, "crashes": `50`, "lease_expires_at": expired}).ID
	live := b.executing(nil).ID
	parent := b.joiner(1)
	child := b.kidOf(parent)
	b.exec(`UPDATE gendurable.gen_durable SET crashes = 1, lease_expires_at = now() - interval '1 s' WHERE id = $1`, child.ID)
	locked := b.executing(columns{"lease_expires_at": expired}).ID
	holder := b.begin()
	b.inTx(holder, `SELECT FROM gendurable.gen_durable WHERE id IN ($1, $2) FOR NO KEY UPDATE`, parent, locked)

	got, err := b.Reap(t.Context(), newMark(), limits, 100)
	require.NoError(t, err)
	require.Equal(t, 2, got.Released)
	require.Empty(t, got.Failed)
	for id, status := range map[int64]string{stranger: "runnable", unlimited: "runnable", live: "executing", child.ID: "executing", locked: "executing"} {
		require.Equal(t, status, b.status(id))
	}
	require.NoError(t, holder.Rollback(t.Context()))
	got, err = b.Reap(t.Context(), newMark(), limits, 100)
	require.NoError(t, err)
	require.Equal(t, 1, got.Released)
	require.Equal(t, []int64{child.ID}, got.Failed)
	require.Equal(t, "runnable", b.status(parent))
}

// T65: if Postgres refuses one outcome, that is a fault of this outcome, and not taken for a
// transient failure.
func TestRefusedOutcomesAreDataFaults(t *testing.T) {
	b := newBench(t)
	for name, o := range map[string]step.Commit{
		"NUL in the state":     {Kind: step.Next, Step: "two", State: []byte(`{"a": "\u0000"}`)},
		"half a surrogate":     {Kind: step.Next, Step: "two", State: []byte(`{"a": "\ud800"}`)},
		"a number too large":   {Kind: step.Next, Step: "two", State: []byte(`1e200000`)},
		"bytes of no encoding": {Kind: step.Fail, Err: "\xff", Failure: "error"},
		"NUL in the error":     {Kind: step.Fail, Err: "a\x00b", Failure: "error"},
		"too long a name":      {Kind: step.Next, Step: strings.Repeat("x", 600)},
	} {
		c := b.executing(nil)
		before := b.everything()
		for _, keep := range []bool{false, o.Kind == step.Next} {
			_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: c, Commit: &o, Keep: keep}}, 0)
			require.Equal(t, store.FaultData, store.Classify(err), "%s: %v", name, err)
			require.Equal(t, before, b.everything())
		}
	}
	c := b.executing(columns{"visit": `9223372036854775807`})
	_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: &step.Claim{ID: c.ID, Token: 7, Visit: 9223372036854775807},
		Commit: &step.Commit{Kind: step.Next, Step: "two"}}}, 0)
	require.Equal(t, store.FaultData, store.Classify(err), err)
}

// If a trigger of the host raises an error for one row, that is this row's fault. If the trigger
// misses something, that looks like a fault of the installation, although it may concern this row
// alone.
func TestRefusalsOfTriggers(t *testing.T) {
	b := newBench(t)
	c := b.executing(nil)
	done := store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Done, Result: []byte(`1`)}}
	for body, want := range map[string]store.Fault{
		`RAISE 'no'`:                                     store.FaultData,
		`RAISE 'no' USING ERRCODE = 'MY001'`:             store.FaultData,
		`PERFORM 1 / (new.id - old.id)`:                  store.FaultData,
		`PERFORM missing()`:                              store.FaultConfig,
		`PERFORM FROM nowhere.missing`:                   store.FaultConfig,
		`RAISE USING ERRCODE = 'insufficient_privilege'`: store.FaultConfig,
	} {
		b.exec(`CREATE OR REPLACE FUNCTION gendurable.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + body + `; RETURN new; END $$`)
		b.exec(`CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON gendurable.gen_durable FOR EACH ROW EXECUTE FUNCTION gendurable.refuse()`)
		before := b.everything()
		_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{done}, 0)
		require.Equal(t, want, store.Classify(err), "%s: %v", body, err)
		require.True(t, store.MayNeverPass(err))
		require.False(t, store.Unknown(err))
		require.Equal(t, before, b.everything())
	}
}
