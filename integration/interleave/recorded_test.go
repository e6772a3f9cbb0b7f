package interleave

import (
	"context"
	"slices"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// These are a machine that is recorded, and a transition of the subject.
var (
	recording  = `INSERT INTO gendurable.recorded_machines (machine) VALUES ('m')`
	transition = moved(`{"id":2,"status":"executing","step":"s","visit":3,"attempt":0}`, `{"id":2,"status":"runnable","step":"t","commit_id":"`+aMark+`"}`)
)

// recorded is the world of a machine whose transitions the history keeps: the subject executes, its
// lease has expired, and another instance is over its deadline. Whichever verb ends the subject's
// claim, and whichever is too late, exactly the applied outcomes are in the history, once.
func recorded() world {
	c := subjectClaim
	setup := slices.Concat([]string{recording, parked,
		row(subjectID, with(with(with(expired, ofParent...), addressed...), "awaits", "'{go}'", "claim_token", "11")...), sibling, follower("1", "1"),
		row(strangerID, "eligible_at", "now() + interval '1 h'")}, inbox)
	verbs := []verb{
		reaps("reap", 0), expires(), commits("next, kept", false, kept(c)), commits("next", false, next(c)), commits("done", false, done(c)),
		sole(commits("retry", false, entry(c, step.Commit{Kind: step.Retry, Step: "s", Err: "again"}))),
		sole(commits("done, unless", false, unless(done(c), "stop"))), sole(commits("batch: done, kept", false, done(c), kept(siblingClaim))),
		sole(transacts("own: next", next(c))), loses("next", next(c)), resolves("next", next(c)),
		delivers("signal stop", byID(subjectID), "stop", ""), holds("hold", subject, subjectID),
		inTurn("cancel, retry", cancels("", subjectID), revives("", subjectID)), cancels("cancel what is overdue", strangerID),
	}
	turned := func(v verb) bool {
		return slices.Contains([]string{"reap", "deadline", "resolve"}, v.family) || v.name == "done, unless"
	}
	return world{name: "recorded", setup: overdue(setup, strangerID), recorded: true, only: turned, verbs: verbs}
}

// hear makes the session's store find out whether some machine is recorded, as a worker does by
// its polls.
func (s *session) hear(ctx context.Context, recorded bool) error {
	if s.recorded == recorded {
		return nil
	}
	s.recorded = recorded
	_, err := s.db.Poll(ctx, nil, nil, nil)
	return err
}

// noted returns outcomes that the history is to keep, if the world is recorded.
func (s *session) noted(entries ...store.Entry) []store.Entry {
	if !s.recorded {
		return entries
	}
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Record = &store.Record{}
	}
	return entries
}

// historyMutants are broken forms of the statements that append to the history.
var historyMutants = []mutant{
	{"outcome that is not appended", "recorded/next|reap", "transition not recorded once", text("FROM h WHERE took >= 0", "FROM h WHERE took < 0")},
	{"history of what the claim has become", "recorded/next, kept|reap", "recorded otherwise", text("AS at, u.visit, u.took", "AS at, g.visit, u.took")},
	{"stale end that is appended", "recorded/done, unless|reap", "recorded though it was none",
		of("THEN 'next' ELSE u.kind END", text("WHERE g.commit_id = $2::uuid", "WHERE $2::uuid IS NOT NULL"))},
	{"end that a signal turns, as the step wanted it", "recorded/done, unless|signal stop", "recorded otherwise",
		text("CASE WHEN g.visit > u.visit THEN 'next' ELSE u.kind END", "u.kind")},
	{"reap that is not appended", "recorded/reap|hold", "transition not recorded once", of("AS over", text("r.machine = h.fsm", "r.machine <> h.fsm"))},
	{"sweep of deadlines that is not appended", "recorded/fail overdue|cancel what is overdue", "transition not recorded once",
		of("FROM overdue e", text("r.machine = h.fsm", "r.machine <> h.fsm"))},
	{"verb that is not recorded", "recorded/cancel, retry|reap", "verb not recorded once", of("'admin.' || $1::text, g.fsm",
		text("WHERE x.id = u.id OFFSET 0) g", "WHERE x.id = u.id AND x.status = 'done' OFFSET 0) g"))},
}
