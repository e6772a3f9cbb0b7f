package store_test

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

var matrix = append(outcomes,
	group{"Claim and lease", "", []transition{
		{name: "claim", from: "runnable", happens: func(s *scene) { s.requireClaim(1, "machine/3") },
			makes: rules{"status": is("executing"), "locked_by": worker, "lease_expires_at": in("now + lease", lease), "claim_token": nextToken,
				"updated_at": now}},
		{name: "claim of one set aside", from: "runnable", with: columns{"pick_lane": `2`},
			happens: func(s *scene) { s.requireClaim(1, "machine/3") },
			makes: rules{"status": is("executing"), "locked_by": worker, "lease_expires_at": in("now + lease", lease), "claim_token": nextToken,
				"updated_at": now, "pick_lane": is("0")}},
		{name: "pick by one who does not know its machine", from: "runnable", happens: func(s *scene) { s.requireClaim(0, "machine/2", "other/3") },
			makes: rules{"pick_lane": is("2")}},
		{name: "pick that finds it behind its key", from: "runnable", prepare: func(s *scene) {
			s.exec(`UPDATE gendurable.gen_durable SET pick_lane = 0, priority = 1 WHERE id = $1`, s.behind)
		}, happens: func(s *scene) { s.requireClaim(1, "machine/3") },
			makes: rules{"pick_lane": is("1"), itsNext: shown("claimed", "executing, lane 0")}},
		{name: "its key is free", from: "runnable", with: columns{"pick_lane": `1`}, happens: func(s *scene) {
			p, err := s.Promote(s.t.Context(), []string{s.key()})
			require.NoError(s.t, err)
			require.Equal(s.t, store.Promotion{Queues: []string{s.queue()}}, p)
		}, makes: rules{"pick_lane": is("0")}},
		{name: "heartbeat", from: "executing", happens: func(s *scene) {
			line := s.Line()
			defer func() { require.NoError(s.t, line.Close(s.t.Context())) }()
			beaten, err := line.Beat(s.t.Context(), me, []*step.Claim{s.claim}, lease)
			require.NoError(s.t, err)
			require.Equal(s.t, store.Beaten{Extended: []int64{s.id}, Paused: []int64{s.id}}, beaten)
		}, makes: rules{"lease_expires_at": in("now + lease", lease)}},
		{name: "release", from: "executing", happens: func(s *scene) {
			done, err := s.Release(s.t.Context(), me, []*step.Claim{s.claim})
			require.NoError(s.t, err)
			require.Equal(s.t, store.Released{Claims: 1, Promotion: store.Promotion{Queues: []string{s.queue()}}}, done)
		}, makes: all(claimEnds, rules{"status": is("runnable")})},
		{name: "release of a run that was cut off", from: "executing", happens: func(s *scene) {
			cut := *s.claim
			cut.CutOff = "lease lost"
			done, err := s.Release(s.t.Context(), me, []*step.Claim{&cut})
			require.NoError(s.t, err)
			require.Equal(s.t, store.Released{Claims: 1, Promotion: store.Promotion{Queues: []string{s.queue()}}}, done)
		}, makes: all(claimEnds, rules{"status": is("runnable"), "errors": remembers("release", "lease lost")})},
		{name: "its step is unknown to its worker", from: "executing", happens: func(s *scene) { s.requireAside("") },
			makes: all(claimEnds, rules{"status": is("runnable"), "pick_lane": is("4"), "aside_step": of("the step", func(*scene) string { return "here" })})},
		{name: "its state cannot be converted", from: "executing", happens: func(s *scene) { s.requireAside("no way") },
			makes: all(claimEnds, rules{"status": is("runnable"), "paused": is("true"), "last_error": is("no way").as("says why"),
				"aside_step": of("the step", func(*scene) string { return "here" })})},
		{name: "claim by one who knows its step", from: "runnable", with: columns{"pick_lane": `4`, "aside_step": `'here'`}, happens: func(s *scene) {
			s.requireStrays(0, store.StepKey{Machine: "machine", Version: 3, Step: "there"}, store.StepKey{Machine: "machine", Version: 2, Step: "here"})
			s.requireStrays(1, store.StepKey{Machine: "machine", Version: 3, Step: "here"})
		}, makes: rules{"status": is("executing"), "locked_by": worker, "lease_expires_at": in("now + lease", lease), "claim_token": nextToken,
			"updated_at": now, "pick_lane": is("0")}},
		{name: "first reap", from: "expired", with: columns{"crashes": `0`}, happens: func(s *scene) { s.requireReap(1, 0, 0) },
			makes: all(claimEnds, reaped)},
		{name: "later reap", from: "expired", happens: func(s *scene) { s.requireReap(1, 0, 4) },
			makes: all(claimEnds, reaped, rules{"eligible_at": in("now + 1 s · 2^(crashes−2)", 4*time.Second)})},
		{name: "reap number twenty", from: "expired", with: columns{"crashes": `19`}, happens: func(s *scene) { s.requireReap(1, 0, 0) },
			makes: all(claimEnds, reaped, rules{"eligible_at": in("now + 5 min", 5*time.Minute)})},
		{name: "reap over the crash limit", from: "expired", happens: func(s *scene) { s.requireReap(0, 1, 3) },
			makes: all(claimEnds, reaped, ended, rules{"status": is("failed"), "failure": is("crashes"),
				"last_error": is("lost its worker 4 times at step here: over the crash limit").as("says so"),
				"errors":     remembers("crash", "lost its worker 4 times at step here: over the crash limit")})},
	}},
	group{"Gates", "Where a gate concerns it, and a process knows of gates.", []transition{
		{name: "pick in front", from: "runnable", with: noPlace, prepare: beGated, happens: func(s *scene) { s.requireGated(0, "machine/3") },
			makes: rules{"gate": shown("its gate", "gate"), "pick_lane": is("3")}},
		{name: "claim from the line", from: "runnable", with: inLine, prepare: beGated, happens: func(s *scene) { s.requireGated(1, "machine/3") },
			makes: rules{"status": is("executing"), "locked_by": worker, "lease_expires_at": in("now + lease", lease), "claim_token": nextToken,
				"place": shown("the lowest free one", "1"), "pick_lane": is("0"), "updated_at": now}},
		{name: "pick from the line by one who does not know its machine", from: "runnable", with: inLine, prepare: beGated,
			happens: func(s *scene) { s.requireGated(0, "other/3") }, makes: rules{"pick_lane": is("2"), "gate": null}},
		{name: "the gate is dropped", from: "runnable", with: inLine, happens: func(s *scene) {
			s.exec(`DELETE FROM gendurable.gates WHERE name NOT LIKE 'held %'`)
			s.requireGated(1, "machine/3")
		}, makes: rules{"status": is("executing"), "locked_by": worker, "lease_expires_at": in("now + lease", lease), "claim_token": nextToken,
			"pick_lane": is("0"), "gate": null, "updated_at": now}},
	}},
	group{"Deadline", "This is about an instance that is not executing. The context of one that executes ends, and it fails with its outcome.", []transition{
		{name: "runnable", from: "runnable", with: past, happens: expire, makes: all(overdue("runnable"), rules{itsNext: promoted})},
		{name: "runnable, paused, behind its key", from: "runnable", with: past.with(columns{"paused": `true`, "pick_lane": `1`}), happens: expire,
			makes: all(overdue("runnable, paused"), rules{itsNext: promoted, "pick_lane": is("0")})},
		{name: "awaiting a signal", from: "awaiting_signal", with: past, happens: expire,
			makes: all(overdue("awaiting_signal"), rules{"await_deadline": null})},
		{name: "awaiting children", from: "awaiting_children", with: past, happens: expire, makes: overdue("awaiting_children")},
		{name: "executing", from: "executing", with: past, happens: func(s *scene) { s.requireExpired() }},
		{name: "failed", from: "failed", with: past, happens: func(s *scene) { s.requireExpired() }},
	}},
	group{"Signals", "", []transition{
		{name: "an awaited signal", from: "awaiting_signal", happens: func(s *scene) { s.requireDelivered("go", true) },
			makes: all(awake, rules{"await_deadline": null, "updated_at": now, itsInbox: received})},
		{name: "another signal", from: "awaiting_signal", happens: func(s *scene) { s.requireDelivered("unasked", false) },
			makes: rules{itsInbox: received}},
		{name: "a signal while it executes", from: "executing", happens: func(s *scene) { s.requireDelivered("go", false) },
			makes: rules{itsInbox: received}},
		{name: "the await times out", from: "awaiting_signal", with: columns{"await_deadline": `now()`}, happens: func(s *scene) {
			got, err := s.TimeOut(s.t.Context(), 10)
			require.NoError(s.t, err)
			require.Equal(s.t, []string{s.queue()}, got.Queues)
		}, makes: all(awake, rules{"await_deadline": null, "timed_out": is("true"), "updated_at": now})},
	}},
	group{"Join, seen from the parent", "A child that fails counts like one that is done.", []transition{
		{name: "not the last child", from: "awaiting_children", prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   rules{"children_pending": shown("−1", "1")}},
		{name: "the last child", from: "awaiting_children", with: columns{"children_pending": `1`}, prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   all(awake, rules{"children_pending": is("0"), "updated_at": now})},
		{name: "the last child fails", from: "awaiting_children", with: columns{"children_pending": `1`}, prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes:   all(awake, rules{"children_pending": is("0"), "updated_at": now})},
		{name: "the last child is over its crash limit", from: "awaiting_children", with: columns{"children_pending": `1`},
			prepare: func(s *scene) { s.kid(columns{"fsm": `'machine'`, "fsm_version": `3`, "crashes": `3`}) },
			happens: func(s *scene) { s.requireReap(0, 1, 3) },
			makes:   all(awake, rules{"children_pending": is("0"), "updated_at": now})},
		{name: "a child of an older round", from: "awaiting_children", prepare: func(s *scene) { s.kid(columns{"parent_round": `8`}) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) }},
		{name: "a child that had joined", from: "awaiting_children", prepare: func(s *scene) { s.kid(columns{"joined": `gen_random_uuid()`}) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) }},
		{name: "done, not yet enough for the policy", from: "awaiting_children", with: underPolicy, prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   rules{"children_pending": shown("−1", "4"), "join_done": shown("+1", "2")}},
		{name: "failed, not yet enough for the policy", from: "awaiting_children", with: underPolicy, prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes:   rules{"children_pending": shown("−1", "4"), "join_failed": shown("+1", "1")}},
		{name: "a node is skipped", from: "awaiting_children", with: underPolicy, prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "skipped"}) },
			makes:   rules{"children_pending": shown("−1", "4")}},
		{name: "done, as many as the policy asks for", from: "awaiting_children", with: underPolicy.with(columns{"wake_done": `2`}),
			prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes: all(awake, rules{"children_pending": shown("−1", "4"), "join_done": shown("+1", "2"), "await_deadline": null,
				"updated_at": now})},
		{name: "failed, the policy cannot be met any more", from: "awaiting_children", with: underPolicy.with(columns{"wake_done": `6`}),
			prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes: all(awake, rules{"children_pending": shown("−1", "4"), "join_failed": shown("+1", "1"), "await_deadline": null,
				"updated_at": now})},
		{name: "an awaited signal", from: "awaiting_children", with: underPolicy.with(columns{"awaits": `'{never,more}'`}),
			happens: func(s *scene) { s.requireDelivered("more", true) },
			makes:   all(awake, rules{"await_deadline": null, "updated_at": now, itsInbox: received})},
		{name: "the join times out", from: "awaiting_children", with: underPolicy.with(columns{"await_deadline": `now()`}), happens: func(s *scene) {
			got, err := s.TimeOut(s.t.Context(), 10)
			require.NoError(s.t, err)
			require.Equal(s.t, []string{s.queue()}, got.Queues)
		}, makes: all(awake, rules{"await_deadline": null, "timed_out": is("true"), "updated_at": now})},
		{name: "the parent does not wait any more", from: "executing", prepare: func(s *scene) { s.kid(nil) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) }},
	}},
	group{"The rest of a round", "This is about a child that no join waits for any more, where the join cancels the rest.", []transition{
		{name: "runnable", from: "runnable", prepare: lose, happens: cancelRest, makes: all(lost, forgotten, rules{itsNext: promoted})},
		{name: "executing", from: "executing", prepare: lose, happens: cancelRest, makes: all(claimEnds, lost, forgotten)},
		{name: "awaiting a signal", from: "awaiting_signal", prepare: lose, happens: cancelRest, makes: all(lost, forgotten, rules{"await_deadline": null})},
		{name: "awaiting children", from: "awaiting_children", prepare: func(s *scene) {
			lose(s)
			s.kid(nil)
			s.kid(columns{"parent_round": `8`})
		}, happens: cancelRest, makes: all(lost, rules{"losers": shown("rounds with live children", "[8, 9]")})},
		{name: "of a graph whose root has ended", from: "awaiting_children", with: waiting, prepare: func(s *scene) {
			s.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), graphs = '{6}' WHERE id = $1`, s.parent)
		}, happens: cancelRest, makes: all(lost, forgotten)},
		{name: "of a graph whose root lives", from: "awaiting_children", with: waiting, prepare: func(s *scene) {
			s.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = 'w', lease_expires_at = now() + interval '1 h',
				graphs = '{6}' WHERE id = $1`, s.parent)
		}, happens: cancelRest, makes: rules{"losers": null, "graphs": null}},
		{name: "of a later round", from: "runnable", prepare: func(s *scene) {
			lose(s)
			s.exec(`UPDATE gendurable.gen_durable SET parent_round = 7, losers = NULL WHERE id = $1`, s.id)
		}, happens: cancelRest, makes: rules{"losers": unchanged, "graphs": unchanged, itsBarrier: lost[itsBarrier]}},
	}},
	group{"Ends of what a node waits for", "The commit that ends a node settles the edges that lead away from it, once each.", []transition{
		{name: "done, not the last", from: "awaiting_children", with: waiting, prepare: func(s *scene) { s.origin(step.NeedsDone) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   rules{"children_pending": shown("−1", "1"), "join_failed": is("0")}},
		{name: "done, the last", from: "awaiting_children", with: waiting.with(columns{"children_pending": `1`}),
			prepare: func(s *scene) { s.origin(step.NeedsDone) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   all(awake, rules{"children_pending": is("0"), "join_failed": is("0"), "updated_at": now})},
		{name: "failed, where that is enough", from: "awaiting_children", with: waiting, prepare: func(s *scene) { s.origin(step.NeedsEnd) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes:   rules{"children_pending": shown("−1", "1"), "join_failed": is("0")}},
		{name: "failed, so that it is skipped", from: "awaiting_children", with: waiting, prepare: func(s *scene) { s.origin(step.NeedsDone) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes:   all(awake, rules{"children_pending": shown("−1", "1"), "join_failed": is("1"), "pick_lane": is("5"), "updated_at": now})},
		{name: "done, where a failure is needed", from: "awaiting_children", with: waiting, prepare: func(s *scene) { s.origin(step.NeedsFailed) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   all(awake, rules{"children_pending": shown("−1", "1"), "join_failed": is("1"), "pick_lane": is("5"), "updated_at": now})},
		{name: "done, of a quorum, not enough", from: "awaiting_children", with: waiting.with(quorate("0")),
			prepare: func(s *scene) { s.origin(step.NeedsAny) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   rules{"join_failed": is("0"), "join_done": is("1"), "join_size": shown("−1", "2")}},
		{name: "done, enough of a quorum", from: "awaiting_children", with: waiting.with(quorate("1")),
			prepare: func(s *scene) { s.origin(step.NeedsAny) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   rules{"children_pending": shown("−1", "1"), "join_failed": is("0"), "join_done": is("2"), "join_size": shown("−1", "2")}},
		{name: "done, more than enough of a quorum", from: "awaiting_children", with: waiting.with(quorate("2")),
			prepare: func(s *scene) { s.origin(step.NeedsAny) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) },
			makes:   rules{"join_failed": is("0"), "join_done": is("3"), "join_size": shown("−1", "2")}},
		{name: "failed, of a quorum that can be", from: "awaiting_children", with: waiting.with(quorate("0")),
			prepare: func(s *scene) { s.origin(step.NeedsAny) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes:   rules{"join_failed": is("0"), "join_size": shown("−1", "2")}},
		{name: "failed, of a quorum that cannot be any more", from: "awaiting_children", with: waiting.with(quorate("0")).with(columns{"join_size": `2`}),
			prepare: func(s *scene) { s.origin(step.NeedsAny) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Fail, Err: "no", Failure: "error"}) },
			makes:   all(awake, rules{"join_failed": is("1"), "join_size": shown("−1", "1"), "pick_lane": is("5"), "updated_at": now})},
		{name: "a node that had joined", from: "awaiting_children", with: waiting, prepare: func(s *scene) {
			s.origin(step.NeedsDone)
			s.exec(`UPDATE gendurable.gen_durable SET joined = gen_random_uuid() WHERE id = $1`, s.kids[0].ID)
		}, happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) }},
		{name: "the node has begun", from: "executing", with: columns{"node": `'n'`}, prepare: func(s *scene) { s.origin(step.NeedsDone) },
			happens: func(s *scene) { s.kidEnds(step.Commit{Kind: step.Done}) }},
	}},
	replacements,
	group{"Insertion", "A column that is not listed has its default.", []transition{
		{name: "insert", happens: func(s *scene) {
			spec := s.spec("new key")
			spec.Scope = step.ScopeAll
			got, err := s.Insert(s.t.Context(), []*step.Spec{&spec})
			require.NoError(s.t, err)
			s.id = got[0].ID
		}, makes: all(inserted, rules{"correlation_key": given("new key"), "correlation_guard": shown("the key", "new key"),
			"correlation_scope": given(`["runnable", "executing", "awaiting_signal", "awaiting_children", "done", "failed"]`)})},
		{name: "insert with a delay", happens: func(s *scene) {
			spec := s.spec("")
			spec.UID, spec.Delay = uuid.MustParse(newUID[:35]+"4"), time.Hour
			got, err := s.Insert(s.t.Context(), []*step.Spec{&spec})
			require.NoError(s.t, err)
			s.id = got[0].ID
		}, makes: all(inserted, rules{"uid": given(newUID[:35] + "4"), "eligible_at": in("now + delay", time.Hour)})},
		{name: "insert at a time", happens: func(s *scene) {
			spec := s.spec("")
			spec.At = tomorrow
			got, err := s.Insert(s.t.Context(), []*step.Spec{&spec})
			require.NoError(s.t, err)
			s.id = got[0].ID
		}, makes: all(inserted, rules{"eligible_at": at("that time, or now", tomorrow)})},
		{name: "as a child", prepare: func(s *scene) {
			s.kid(columns{"parent_id": `NULL`, "visit": `20`, "depth": `3`})
		}, happens: func(s *scene) {
			s.kids[0].Visit, s.kids[0].Depth, s.kids[0].Parent = 20, 3, 0
			s.commit(s.mark, false, store.Entry{Claim: s.kids[0],
				Commit: &step.Commit{Kind: step.Children, Step: "join", State: []byte(`{}`), Spawn: []step.Spec{s.spec("")}}})
			s.id = int64(s.bench.number(`SELECT id FROM gendurable.gen_durable WHERE parent_id = $1`, s.kids[0].ID))
		}, makes: all(inserted, rules{"parent_id": something("the parent"), "parent_round": shown("the parent's round", "21"),
			"depth": shown("the parent's + 1", "4")})},
		{name: "as a node that waits for two", prepare: func(s *scene) {
			s.kid(columns{"parent_id": `NULL`, "visit": `20`, "depth": `3`})
		}, happens: func(s *scene) {
			s.kids[0].Visit, s.kids[0].Depth, s.kids[0].Parent = 20, 3, 0
			before := kids(2)
			s.commit(s.mark, false, store.Entry{Claim: s.kids[0],
				Commit: &step.Commit{Kind: step.Children, Step: "join", State: []byte(`{}`), Spawn: []step.Spec{before[0], before[1], s.spec("")},
					Graph: &step.Graph{Nodes: []string{"a", "b", "c"}, Edges: []step.Edge{{From: 0, To: 2}, {From: 1, To: 2, Needs: step.NeedsEnd}}}}})
			s.id = int64(s.bench.number(`SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 AND node = 'c'`, s.kids[0].ID))
		}, makes: all(inserted, rules{"parent_id": something("the parent"), "parent_round": shown("the parent's round", "21"),
			"depth": shown("the parent's + 1", "4"), "node": given("c"), "status": is("awaiting_children"), "children_pending": shown("its edges", "2")})},
	}},
	operators, restarts, additions,
)

// underPolicy is a parent of six children, one of which is done.
var underPolicy = columns{"join_round": `9`, "join_size": `6`, "join_done": `1`, "join_failed": `0`, "children_pending": `5`, "wake_done": `3`,
	"wake_failed": `2`, "wake_ended": `NULL`, "await_deadline": `now() + interval '1 hour'`}

// lose makes the scene's row a child that its parent does not wait for any more.
func lose(s *scene) {
	s.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), losers = '{6}' WHERE id = $1`, s.parent)
}

func cancelRest(s *scene) {
	_, err := s.CancelRest(s.t.Context(), s.mark, s.parent-1, 10)
	require.NoError(s.t, err)
}

const doesNotWait = "cancelled: its parent does not wait for it any more"

// waiting is a node that waits for two others.
var waiting = columns{"node": `'n'`, "visit": `0`, "round": `0`, "children_pending": `2`, "awaits": `NULL`, "join_failed": `NULL`}

// quorate is a quorum of two of three, the others of which are done or to come.
func quorate(done string) columns {
	return columns{"wake_done": `2`, "join_done": done, "join_size": `3`}
}

// origin makes an executing node for which the scene's row waits.
func (s *scene) origin(needs step.Need) {
	s.t.Helper()
	s.kid(columns{"parent_id": number(s.parent), "parent_round": `5`, "node": `'origin'`})
	s.kids[0].Parent, s.kids[0].ParentRound, s.kids[0].Node = s.parent, 5, "origin"
	s.exec(`INSERT INTO gendurable.edges VALUES ($1, $2, $3)`, s.kids[0].ID, s.id, int16(needs))
}

var (
	reaped = rules{"status": is("runnable"), "attempt": plusOne, "crashes": plusOne, "updated_at": now,
		"errors": remembers("crash", "lost its worker")}

	lost = all(ended, rules{"status": is("failed"), "failure": is("cancelled"), "losers": null, "gate": null, "place": null, "seat": null,
		"last_error": is(doesNotWait).as("says why"),
		"errors":     remembers("cancel", doesNotWait),
		itsBarrier:   {"losers: none", func(s *scene, _, is *string) bool { return is != nil && strings.Contains(*is, `"losers": null`) }}})

	// forgotten is the end of a separate round without live children.
	forgotten = rules{"graphs": null.as("without that round")}

	past   = columns{"deadline": `'2026-01-02 03:04:05.678Z'`}
	expire = func(s *scene) { s.requireExpired(s.id) }

	inserted = rules{"id": something("next id"), "uid": given(newUID), "fsm": given("new machine"), "fsm_version": given("2"), "step": given("first"),
		"queue": given("new queue"), "priority": given("-5"), "state": given(`{"state": "new"}`), "partition_key": given("new partition"),
		"eligible_at": now, "inserted_at": now, "updated_at": now}
)

// requireClaim claims from the scene's queue with a worker that knows machines, and expects n rows.
func (s *scene) requireClaim(n int, machines ...string) {
	s.t.Helper()
	got, err := s.Claim(s.t.Context(), store.ClaimParams{Queue: s.queue(), Worker: me, Machines: machines, Limit: 10, Window: 100, Lease: lease})
	require.NoError(s.t, err)
	require.Len(s.t, got.Claims, n)
}

// requireAside sets the scene's claim aside.
func (s *scene) requireAside(fault string) {
	s.t.Helper()
	done, err := s.SetAside(s.t.Context(), me, []store.Aside{{Claim: s.claim, Fault: fault}})
	require.NoError(s.t, err)
	require.Equal(s.t, store.Released{Claims: 1, Promotion: store.Promotion{Queues: []string{s.queue()}}}, done)
}

// requireStrays claims the strays of the scene's queue at given steps, and expects n of them.
func (s *scene) requireStrays(n int, steps ...store.StepKey) {
	s.t.Helper()
	got, err := s.ClaimStrays(s.t.Context(), store.ClaimParams{Queue: s.queue(), Worker: me, Machines: []string{"machine/3"}, Limit: 10, Lease: lease}, steps)
	require.NoError(s.t, err)
	require.Len(s.t, got.Claims, n)
}

// requireReap sweeps, with a crash limit for the fixtures' machine.
var inLine = columns{"gate": `'gate'`, "place": `NULL`, "seat": `NULL`, "pick_lane": `3`}

func beGated(s *scene) {
	s.gate(store.Gate{Name: "gate", Machine: "machine", Places: 9, Total: store.NoBound})
}

func (s *scene) requireGated(n int, machines ...string) {
	s.t.Helper()
	got, err := s.Claim(s.t.Context(), store.ClaimParams{Queue: s.queue(), Worker: me, Machines: machines, Limit: 10, Window: 100, Lease: lease,
		Gated: true})
	require.NoError(s.t, err)
	require.Len(s.t, got.Claims, n)
}

func (s *scene) requireReap(released, failed int, most int32) {
	s.t.Helper()
	got, err := s.Reap(s.t.Context(), s.mark, store.CrashLimits{Machines: []string{"machine/3"}, Limits: []int32{most}}, 10)
	require.NoError(s.t, err)
	require.Equal(s.t, []int{released, failed, 0}, []int{got.Released, len(got.Failed), len(got.Refused)})
}

// overdue returns the rules for a row that the sweep of deadlines fails.
func overdue(was string) rules {
	text := "over its deadline of 2026-01-02T03:04:05.678Z at step here, " + was
	return all(ended, rules{"status": is("failed"), "failure": is("deadline"), "last_error": is(text).as("says so"),
		"errors": remembers("deadline", text), "gate": null, "place": null, "seat": null})
}

// requireExpired sweeps deadlines, and expects the ids of the failed rows.
func (s *scene) requireExpired(ids ...int64) {
	s.t.Helper()
	got, err := s.Expire(s.t.Context(), s.mark, 10)
	require.NoError(s.t, err)
	require.Equal(s.t, ids, got.Failed)
	require.Empty(s.t, got.Refused)
	require.Empty(s.t, got.Missed)
}

func (s *scene) requireDelivered(name string, woken bool) {
	s.t.Helper()
	d, err := s.Deliver(s.t.Context(), byID(s.id), named(name), cap10)
	require.NoError(s.t, err)
	require.Equal(s.t, store.Delivery{Target: s.id, Queue: s.queue(), Woken: woken, Runnable: woken}, d)
}
