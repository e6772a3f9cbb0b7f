package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// waitsStill is a row that was never claimed, and of which others have noted all that they can.
var waitsStill = columns{"claim_token": `0`, "await_deadline": `now() + interval '1 hour'`, "labels": `'{"customer": "acme"}'`, "trace": `'{"t": "old"}'`}

var replacements = group{"Replacement", "This is about an instance that nobody has claimed. A replace by a policy or a debounce leaves any other alone.", []transition{
	{name: "one that is due", from: "runnable", with: waitsStill, happens: replaced(nil), makes: asReplaced},
	{name: "one that is delayed", from: "runnable", with: waitsStill.with(columns{"eligible_at": `now() + interval '1 day'`}), happens: replaced(nil),
		makes: all(asReplaced, rules{"eligible_at": now})},
	{name: "by a delayed spec", from: "runnable", with: waitsStill, happens: replaced(func(x *step.Spec) { x.Delay = time.Hour }),
		makes: all(asReplaced, rules{"eligible_at": in("now + delay", time.Hour)})},
	{name: "by a spec of a time", from: "runnable", with: waitsStill, happens: replaced(func(x *step.Spec) { x.At = tomorrow }),
		makes: all(asReplaced, rules{"eligible_at": at("that time, or now", tomorrow)})},
	{name: "of a debounce", from: "runnable", with: waitsStill, prepare: debounced("now()"), happens: replaced(debounce),
		makes: all(asReplaced, rules{"eligible_at": in("now + delay", time.Minute)})},
	{name: "of a debounce whose bound has passed", from: "runnable", with: waitsStill, prepare: debounced("'2026-01-02 03:04:05Z'"), happens: replaced(debounce),
		makes: all(asReplaced, rules{"eligible_at": shown("first + most", "2026-01-02T03:14:05+00:00")})},
	{name: "paused, behind its key", from: "runnable", with: waitsStill.with(columns{"paused": `true`, "pick_lane": `1`}), happens: replaced(nil),
		makes: all(asReplaced, rules{"pick_lane": is("0")})},
	{name: "behind a known gate", from: "runnable", with: waitsStill, happens: func(s *scene) {
		s.exec(`INSERT INTO gendurable.gates (name, label, places) VALUES ('per', 'customer', 1)`)
		defer s.exec(`DELETE FROM gendurable.gates WHERE name NOT LIKE 'held %'`)
		s.bench = benchOn(s.t, s.pool) // one that knows the gate
		_, err := s.Poll(s.t.Context(), nil, nil, nil)
		require.NoError(s.t, err)
		replaced(func(x *step.Spec) { x.PartitionKey, x.Labels = "", []byte(`{"customer": "zoo"}`) })(s)
	}, makes: all(asReplaced, rules{"partition_key": null, "labels": given(`{"customer": "zoo"}`), "gate": shown("its gate", "per/zoo"), "pick_lane": is("3")})},
}}

// asReplaced is what a replace makes of a row. A column without a rule stays: who the instance is,
// and what it counts.
var asReplaced = rules{"fsm": given("new machine"), "fsm_version": given("2"), "step": given("first"), "state": given(`{"state": "new"}`),
	"queue": given("new queue"), "priority": given("-5"), "partition_key": given("new partition"), "labels": given(`{"customer": "zoo"}`), "trace": null,
	"retain": null, "deadline": null, "attempt": is("0"), "crashes": is("0"), "last_error": null, "errors": null, "result": null, "progress": null,
	"awaits": null, "await_deadline": null, "timed_out": is("false"), "commit_id": null, "aside_step": null, "gate": null, "place": null, "seat": null,
	"run_gate": null, "run_place": null, "updated_at": now, itsNext: promoted,
	"correlation_key":   rule{"given", func(s *scene, _, is *string) bool { return is == nil || *is == s.key() }},
	"correlation_guard": rule{"the key", func(s *scene, _, is *string) bool { return is == nil || *is == s.key() }},
	"correlation_scope": rule{"given", func(*scene, *string, *string) bool { return true }}}

// replaced returns a function that replaces the scene's row by a spec.
func replaced(change func(*step.Spec)) func(s *scene) {
	return func(s *scene) {
		s.t.Helper()
		spec := s.spec(s.key())
		spec.UID, spec.Conflict, spec.Labels = uuid.New(), step.ConflictReplace, []byte(`{"customer": "zoo"}`)
		if change != nil {
			change(&spec)
		}
		got, err := s.Insert(s.t.Context(), []*step.Spec{&spec})
		require.NoError(s.t, err)
		require.Equal(s.t, []store.Inserted{{ID: s.id, Replaced: true}}, got)
	}
}

func debounce(x *step.Spec) {
	x.Key, x.Conflict, x.Delay = "", step.ConflictRefuse, time.Minute
	x.Window = step.Window{Kind: step.WindowDebounce, Key: "w", For: time.Minute, Most: 10 * time.Minute}
}

// debounced makes the scene's row the instance of a window whose first spec came at a time.
func debounced(first string) func(s *scene) {
	return func(s *scene) {
		s.exec(`DELETE FROM gendurable.windows WHERE name NOT LIKE 'held %'`)
		s.exec(`INSERT INTO gendurable.windows (name, uid, instance, opened_at, until) VALUES ('debounce:w', gen_random_uuid(), $1, `+first+`, now() + interval '1 hour')`, s.id)
	}
}

// staysReplaced are the columns in which a replaced row is still what it was.
var staysReplaced = []string{"id", "uid", "inserted_at", "paused", "visit", "round", "parent_id", "parent_round", "joined", "depth", "node",
	"children_pending", "dropped", "graphs", "join_round", "join_size", "join_done", "join_failed", "wake_done", "wake_failed", "wake_ended", "losers",
	"stream_most", "stream_nth", "stream_visit"}

// A replaced row is in every column but those that say who it is, what an insert of the same spec
// makes of a new one. A new column is in this test at once: it has the insert's value, or is one of
// staysReplaced. Its fixture needs a value that differs from the default.
func TestAReplaceIsAnInsertInEveryColumn(t *testing.T) {
	b := newBench(t)
	times := []string{"eligible_at", "updated_at"} // of two statements, so they differ
	ours := []string{"correlation_key", "correlation_guard"}
	s := b.newScene(&transition{from: "runnable", with: waitsStill.with(columns{"dropped": `'[]'`, "node": `'n'`, "joined": `gen_random_uuid()`, "paused": `true`})})
	was := s.photograph()
	spec := func() *step.Spec {
		x := s.spec(s.key())
		x.UID, x.Conflict, x.Labels, x.Trace = uuid.New(), step.ConflictReplace, []byte(`{"customer": "zoo"}`), []byte(`{"t": "new"}`)
		x.Scope, x.Retain = step.ScopeAll, step.Retain{Done: time.Hour}
		return &x
	}
	twin := spec()
	twin.Key = s.key() + " twin"
	fresh := &scene{bench: b, id: b.insertOne(twin).ID}
	require.True(t, b.insertOne(spec()).Replaced)
	inserted, is := fresh.photograph(), s.photograph()
	for _, name := range known {
		switch {
		case slices.Contains(times, name), slices.Contains(ours, name):
		case slices.Contains(staysReplaced, name):
			require.Equal(t, show(was[name]), show(is[name]), name)
			if name != "joined" && name != "round" {
				require.NotEqual(t, show(inserted[name]), show(is[name]), "the fixture has the value of an insert in %s", name)
			}
		default:
			require.Equal(t, show(inserted[name]), show(is[name]), name)
			if name != "status" && name != "claim_token" && name != "pick_lane" && name != "locked_by" && name != "lease_expires_at" && name != "failure" && name != "fingerprint" && name != "finished_at" {
				require.NotEqual(t, show(was[name]), show(is[name]), "the fixture has the value of an insert in %s", name)
			}
		}
	}
}

// An instance that is late already is not delayed any more, however often and by any program it is
// replaced.
func TestAReplaceKeepsItsTurn(t *testing.T) {
	b := newBench(t)
	for _, x := range []func(*step.Spec){onConflict("k", step.ConflictReplace), windowed(step.WindowDebounce, "k", time.Millisecond, time.Millisecond)} {
		b.clear()
		first := b.insertOne(specWith(0, x))
		b.exec(`UPDATE gendurable.gen_durable SET eligible_at = eligible_at - interval '1 hour'`)
		b.exec(`UPDATE gendurable.windows SET opened_at = opened_at - interval '1 hour'`)
		other := b.insertOne(specWith(1000))
		b.exec(`UPDATE gendurable.gen_durable SET eligible_at = eligible_at - interval '1 minute' WHERE id = $1`, other.ID)
		for n := range 5 {
			require.True(t, b.insertOne(specWith(n+1, x)).Replaced)
		}
		require.Equal(t, first.ID, b.claim(func(p *store.ClaimParams) { p.Limit = 1 }).Claims[0].ID)
		require.Equal(t, 5, b.n(first.ID))
	}
}
