package interleave

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// kindRestart marks the session of an operator who restarts what has failed.
const kindRestart step.Kind = "operator restart"

// restarts restarts what has failed beneath an instance, or a failed child. If there is nothing to
// restart, or the instance that waits for it has gone on, that is a valid result.
func restarts(name string, id int64) verb {
	return verb{name: name, family: "restart", touches: subject | key | guard | parent, run: func(ctx context.Context, s *session) {
		s.facts.mark(uuid.NewString(), s.name, kindRestart)
		once := func(ctx context.Context) error {
			got, err := s.db.Operate(ctx, []int64{id}, &store.Order{Verb: store.Restart, Mark: uuid.NewString(), Most: 100, By: store.By{Actor: s.name}})
			if _, occupied := errors.AsType[*store.OccupiedError](err); occupied {
				return nil
			}
			s.promoteMissed(got.Missed)
			return err
		}
		s.insist(name, once(ctx), once)
	}}
}

const (
	skippedID = 6 // a node that was skipped
	wokenID   = 7 // a node that a failure has woken
)

// restarted is the world of a graph of which one node has failed while its root waits: another
// executes, one waits for both, one is about to be skipped, one was, and one was woken by the
// failure.
func restarted() world {
	root := row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "4", "join_round", "1",
		"join_size", "6", "join_done", "0", "join_failed", "1", "graphs", "'{1}'")
	w := failing("restart", root)
	w.verbs = append(w.verbs, restarts("restart node", subjectID), cancels("cancel root", parentID), cancelsFamily("cancel family", parentID),
		holds("hold root, waiting", subject|parent, parentID, followerID), expires())
	return w
}

// restartedLate is that world where the root has failed, and the rest of the graph is to be
// cancelled.
func restartedLate() world {
	root := row(parentID, "status", "'failed'", "failure", "'error'", "finished_at", "now() - interval '2 h'", "visit", "1", "round", "1",
		"children_pending", "4", "join_round", "1", "join_size", "6", "join_done", "0", "join_failed", "1", "wake_failed", "1", "graphs", "'{1}'")
	w := failing("restart ended", root)
	w.rests = true
	w.verbs = append(w.verbs, revives("retry root", parentID), prunes(), cancelsRest("rest"))
	return w
}

func failing(name, root string) world {
	node := func(name string, more ...string) []string {
		return with(with(more, ofParent...), "depth", "1", "node", "'"+name+"'")
	}
	over := func(failure string) []string {
		return []string{"status", "'failed'", "failure", "'" + failure + "'", "finished_at", "now() - interval '2 h'", "joined", "'00000000-0000-0000-0000-000000000001'"}
	}
	setup := []string{
		root,
		row(subjectID, node("a", over("error")...)...),
		row(siblingID, node("b", with(expired, "claim_token", "12", "crashes", "1")...)...),
		row(followerID, node("c", "status", "'awaiting_children'", "children_pending", "1")...),
		row(strangerID, node("d", "join_failed", "1", "pick_lane", "5")...),
		row(skippedID, node("e", with(over("skipped"), "join_failed", "1")...)...),
		row(wokenID, node("g")...),
		"INSERT INTO gendurable.edges VALUES (2, 4, 1), (3, 4, 0), (2, 5, 0), (2, 6, 0), (2, 7, 2)",
	}
	claim := func(id, token int64, name string) *step.Claim {
		return &step.Claim{ID: id, Token: token, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1, Node: name}
	}
	b := claim(siblingID, 12, "b")
	return world{name: name, setup: overdue(setup, followerID), only: func(v verb) bool { return v.family == "restart" }, verbs: []verb{
		restarts("restart", parentID), ofTheParent(commits("done", false, done(b))), ofTheParent(commits("stop, slow", true, stopped(b))),
		skips("skip"), inTurn("pause, skip, resume", operates("", store.Pause, strangerID), skips(""), operates("", store.Resume, strangerID)), operates("run now", store.RunNow, strangerID),
		ofTheParent(transacts("own: done", done(b))), reaps("reap to the limit", 1), cancels("cancel waiting", followerID), cancels("cancel node", siblingID),
		claims("claim", "default", owner, 10), operates("pause woken", store.Pause, wokenID), holds("hold waiting", subject|parent, followerID),
	}}
}
