package interleave

import (
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// graph is the world of a graph: two nodes execute, a third waits until both are done, a fourth
// until the second has failed, and a fifth until one of the two is done.
func graph() world {
	node := func(name string, more ...string) []string {
		return with(with(more, ofParent...), "depth", "1", "node", "'"+name+"'")
	}
	setup := []string{
		row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "5"),
		row(subjectID, node("a", with(executing, "claim_token", "11")...)...),
		row(siblingID, node("b", with(expired, "claim_token", "12", "crashes", "1")...)...),
		row(followerID, node("c", "status", "'awaiting_children'", "children_pending", "2")...),
		row(strangerID, node("d", "status", "'awaiting_children'", "children_pending", "1")...),
		row(nephewID, node("e", "status", "'awaiting_children'", "children_pending", "1", "wake_done", "1", "join_done", "0", "join_size", "2")...),
		"INSERT INTO gendurable.edges VALUES (2, 4, 0), (3, 4, 0), (3, 5, 2), (2, 7, 3), (3, 7, 3)",
	}
	claim := func(id, token int64, name string) *step.Claim {
		return &step.Claim{ID: id, Token: token, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1, Node: name}
	}
	one, two := claim(subjectID, 11, "a"), claim(siblingID, 12, "b")
	return world{name: "graph", setup: overdue(setup, followerID), verbs: []verb{
		expires(), looksAt(one), commits("done", false, done(one)), commits("stop", false, stopped(one)), commits("done, slow", true, done(one)),
		commits("done, unless", false, unless(done(one), "go")), transacts("own: done", done(one)), transacts("own: stop", stopped(one)),
		commits("another done", false, done(two)), commits("another stop, slow", true, stopped(two)), commits("both", false, done(one), stopped(two)),
		reaps("reap to the limit", 1), cancels("cancel node", subjectID), cancels("cancel waiting", followerID), cancels("cancel root", parentID),
		cancelsFamily("cancel family", parentID), claims("claim", "default", owner, 10), delivers("signal node", byID(subjectID), "go", ""),
		holds("hold waiting", subject|parent, followerID), holds("hold waiting, root", subject|parent, parentID, followerID),
		operates("pause waiting", store.Pause, followerID), skips("skip"),
		commits("adds", true, adding(done(one))), commits("stop that adds", true, adding(stopped(one))), commits("next that adds", true, adding(next(one))),
		commits("another adds", true, adding(done(two))), transacts("own: adds", adding(done(one))),
	}}
}

// graphOver is that world where the root has failed: a decides what to add, c waits for it and for
// b, which was cancelled with the root, and the operator restarts the root.
func graphOver() world {
	node := func(name string, more ...string) []string {
		return with(with(more, ofParent...), "depth", "1", "node", "'"+name+"'")
	}
	setup := []string{
		row(parentID, "status", "'failed'", "failure", "'cancelled'", "finished_at", "now()", "visit", "1", "round", "1", "children_pending", "2"),
		row(subjectID, node("a", with(expired, "claim_token", "11", "partition_key", "'k'")...)...),
		row(siblingID, node("b", "status", "'failed'", "failure", "'cancelled'", "finished_at", "now()", "joined", "'00000000-0000-0000-0000-000000000001'")...),
		row(followerID, node("c", "status", "'awaiting_children'", "children_pending", "1", "join_failed", "0")...),
		row(nephewID, node("e", "status", "'awaiting_children'", "children_pending", "1")...),
		"INSERT INTO gendurable.edges VALUES (2, 4, 0), (3, 4, 1), (2, 7, 2)",
	}
	one := &step.Claim{ID: subjectID, Token: 11, Step: "s", Queue: "default", PartitionKey: "k", Parent: parentID, ParentRound: 1, Depth: 1, Node: "a"}
	return world{name: "graph over", setup: setup, verbs: []verb{
		ofTheParent(commits("adds", true, adding(done(one)))), ofTheParent(commits("stop that adds", true, adding(stopped(one)))),
		ofTheParent(commits("next that adds", true, adding(next(one)))), ofTheParent(transacts("own: adds", adding(done(one)))),
		restarts("restart", parentID), cancels("cancel node", subjectID), cancelsFamily("cancel family", parentID),
		reaps("reap", 5), claims("claim", "default", owner, 10), delivers("signal node", byID(subjectID), "go", ""),
		holds("hold waiting", subject|parent, followerID), holds("hold root", subject|parent, parentID),
	}}
}

// adding lets an outcome add two nodes: one that waits for the ends of both that execute, and for
// which the third waits, and one that waits for the fifth.
func adding(e store.Entry) store.Entry {
	e.Commit.Add = &step.Additions{Specs: []step.Spec{spec("", ""), spec("", "")}, Most: 100, Graph: step.Graph{
		Nodes: []string{"x " + e.Claim.Node, "y " + e.Claim.Node, "a", "b", "c", "e"},
		Edges: []step.Edge{{From: 2, To: 0, Needs: step.NeedsEnd}, {From: 3, To: 0, Needs: step.NeedsEnd}, {From: 0, To: 4}, {From: 5, To: 1}},
	}}
	return e
}
