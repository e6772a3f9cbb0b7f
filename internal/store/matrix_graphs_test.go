package store_test

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

var restarts = group{"A restart", "What runs again, and what waits for it. A row that is done stays as it was.", []transition{
	{name: "of a failed child", from: "failed", happens: func(s *scene) { s.requireRestart(s.id, 1) },
		makes: all(runsAgain, rules{"status": is("runnable"), itsBarrier: waitsForMore(1)})},
	{name: "of one that failed when its children had joined", from: "failed", with: columns{"visit": `9`, "join_round": `9`, "node": `NULL`},
		prepare: failedKid, happens: func(s *scene) { s.requireRestart(s.id, 2) },
		makes: all(runsAgain, waitsForItsRound, rules{itsBarrier: waitsForMore(1)})},
	{name: "beneath one that waits", from: "awaiting_children", with: underPolicy.with(columns{"visit": `9`, "join_failed": `1`, "wake_ended": `3`}), prepare: failedKid,
		happens: func(s *scene) { s.requireRestart(s.kids[0].ID, 1) },
		makes:   rules{"children_pending": plusOne, "join_failed": shown("−1", "0"), "wake_failed": shown("−1", "1"), "wake_ended": shown("−1", "2")}},
	{name: "of what a node waits for", from: "awaiting_children", with: waiting.with(columns{"wake_done": `NULL`, "children_pending": `0`}),
		prepare: func(s *scene) { failedOrigin(s, step.NeedsEnd) }, happens: func(s *scene) { s.requireRestart(s.kids[0].ID, 1) },
		makes: rules{"children_pending": plusOne, itsBarrier: waitsForMore(1)}},
	{name: "of what a node was skipped for", from: "failed", with: waiting.with(columns{"failure": `'skipped'`, "children_pending": `1`, "join_failed": `1`, "wake_done": `NULL`}),
		prepare: func(s *scene) { failedOrigin(s, step.NeedsDone) }, happens: func(s *scene) { s.requireRestart(s.kids[0].ID, 2) },
		makes: all(runsAgain, rules{"status": is("awaiting_children"), "join_failed": is("0"), "last_error": null, "commit_id": null, itsBarrier: waitsForMore(2)})},
}}

var additions = group{"Additions to a graph", "A node ends, and adds others to its graph.", []transition{
	{name: "a node that is to wait for an added one", from: "awaiting_children", with: waiting, prepare: adder,
		happens: func(s *scene) { s.requireAdded("x>n") }, makes: rules{"children_pending": plusOne}},
	{name: "an added node", prepare: adder, happens: func(s *scene) {
		s.requireAdded("x<origin")
		s.id = int64(s.bench.number(`SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 AND node = 'x'`, s.parent))
	}, makes: all(inserted, rules{"parent_id": of("the root", func(s *scene) string { return number(s.parent) }), "parent_round": shown("the root's round", "6"),
		"depth": shown("the node's", "0"), "node": given("x"), "join_failed": is("0")})},
}}

// waitsForMore is the barrier of a parent that has so many children more to wait for.
func waitsForMore(n int) rule {
	return rule{"pending +" + number(n), func(_ *scene, was, is *string) bool {
		return is != nil && strings.Replace(*was, `"children_pending": 2`, `"children_pending": `+number(2+n), 1) == *is
	}}
}

var (
	runsAgain = rules{"failure": null, "finished_at": null, "attempt": is("0"), "crashes": is("0"), "eligible_at": now, "updated_at": now,
		"run_gate": null, "run_place": null, "joined": null, "pick_lane": is("0"), "correlation_guard": of("the key", func(s *scene) string { return s.key() })}
	waitsForItsRound = rules{"status": is("awaiting_children"), "children_pending": shown("those that run again", "1"), "last_error": null, "awaits": null,
		"timed_out": is("false"), "wake_done": null, "wake_failed": null, "wake_ended": null, "losers": null.as("without its round"), "join_size": shown("children of the round", "1"), "join_done": shown("of them", "0"),
		"join_failed": shown("of them, but those that run again", "0")}
)

// failedKid is a child of the scene's row that failed.
func failedKid(s *scene) {
	s.kid(columns{"status": `'failed'`, "failure": `'error'`, "finished_at": `now()`, "joined": `gen_random_uuid()`, "locked_by": `NULL`, "lease_expires_at": `NULL`})
}

// failedOrigin is a node for which the scene's row waits, and which failed.
func failedOrigin(s *scene, needs step.Need) {
	s.origin(needs)
	s.exec(`UPDATE gendurable.gen_durable SET parent_round = 6, visit = 0 WHERE id = $1`, s.kids[0].ID)
	s.exec(`UPDATE gendurable.gen_durable SET visit = 6 WHERE id = $1`, s.parent)
	s.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now(), joined = gen_random_uuid(), locked_by = NULL,
		lease_expires_at = NULL WHERE id = $1`, s.kids[0].ID)
}

// adder is a node beside the scene's row that is about to end.
func adder(s *scene) {
	s.kid(columns{"parent_id": number(s.parent), "parent_round": `6`, "node": `'origin'`})
	s.kids[0].Parent, s.kids[0].ParentRound, s.kids[0].Node = s.parent, 6, "origin"
}

// requireRestart restarts an instance, and expects so many changes.
func (s *scene) requireRestart(id int64, changes int) {
	s.t.Helper()
	got, err := s.Operate(s.t.Context(), []int64{id}, &store.Order{Verb: store.Restart, Mark: s.mark, Most: 10})
	require.NoError(s.t, err)
	require.Empty(s.t, got.Refused)
	require.Len(s.t, got.Changed, changes)
}

// requireAdded lets the node of adder end with additions.
func (s *scene) requireAdded(text string) {
	s.t.Helper()
	e := adding(endOf(s.kids[0], true), text)
	e.Commit.Add.Specs[0] = s.spec("")
	s.commit(s.mark, false, e)
}
