package interleave

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
)

// kindRest marks a sweep of the children that no join waits for any more.
const kindRest step.Kind = "rest"

const grandchildID = 10 // a child of the nephew, of a round that is over

// rest is the world of a join that cancels the rest of its round, while the parent waits: a parent
// of four children goes on when two of them are done, or at a signal, or now.
func rest() world {
	w := losing("rest", row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "4", "join_round", "1",
		"join_size", "4", "join_done", "0", "join_failed", "0", "wake_done", "2", "awaits", "'{go}'", "await_deadline", "now() - interval '1 s'",
		"deadline", "now() - interval '1 s'", "losers", "'{1}'"))
	w.verbs = append(w.verbs, timesOut(), expires(), delivers("signal parent", byID(parentID), "go", ""), claims("claim", "default", owner, 10))
	return w
}

// left is that world where the parent has gone on, and executes.
func left() world {
	c := &step.Claim{ID: parentID, Token: 13, Visit: 1, Round: 1, Step: "s", Queue: "default"}
	w := losing("left", row(parentID, with(executing, "visit", "1", "round", "1", "claim_token", "13", "children_pending", "4", "join_round", "1",
		"join_size", "4", "join_done", "0", "join_failed", "0", "losers", "'{1}'")...))
	w.verbs = append(w.verbs, ofTheParent(commits("parent done", false, done(c))), ofTheParent(commits("parent done, slow", true, done(c))),
		ofTheParent(commits("parent spawns", false, spawns(c, spec("", ""), spec("", "")))),
		ofTheParent(commits("parent spawns, its rest, too", false,
			policed(spawns(c, spec("", ""), spec("", "")), step.Join{Done: 1, Timeout: time.Hour, Cancel: true}))),
		ofTheParent(commits("parent rejoins", false, rejoins(c, step.Join{}))),
		ofTheParent(commits("parent rejoins, its rest, too", false, rejoins(c, step.Join{Ended: 1, Cancel: true}))),
		ofTheParent(releases("parent released", c)), ofTheParent(beats("beat parent", c)))
	return w
}

// rootEnding is the world of a root whose join says nothing of the rest, while it waits: it goes on
// when one node has failed, at a signal, or now.
func rootEnding() world {
	w := over("ending", row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "4", "join_round", "1",
		"join_size", "4", "join_done", "0", "join_failed", "0", "wake_failed", "1", "awaits", "'{go}'", "await_deadline", "now() - interval '1 s'",
		"deadline", "now() - interval '1 s'", "graphs", "'{1}'"))
	w.verbs = append(w.verbs, timesOut(), expires(), delivers("signal root", byID(parentID), "go", ""), claims("claim", "default", owner, 10))
	return w
}

// rootEnded is that world where the root has gone on, and executes.
func rootEnded() world {
	c := &step.Claim{ID: parentID, Token: 13, Visit: 1, Round: 1, Step: "s", Queue: "default"}
	w := over("ended", row(parentID, with(executing, "visit", "1", "round", "1", "claim_token", "13", "children_pending", "4", "join_round", "1",
		"join_size", "4", "join_done", "0", "join_failed", "0", "graphs", "'{1}'")...))
	w.verbs = append(w.verbs, ofTheParent(commits("root done", false, done(c))), ofTheParent(commits("root stop, slow", true, stopped(c))),
		ofTheParent(commits("root spawns", false, spawns(c, spec("", ""), spec("", "")))),
		ofTheParent(commits("root rejoins", false, rejoins(c, step.Join{}))),
		ofTheParent(commits("root rejoins, its rest, too", false, rejoins(c, step.Join{Ended: 1, Cancel: true}))),
		ofTheParent(releases("root released", c)),
		inTurn("cancel root, retry", cancels("", parentID), revives("", parentID)), inTurn("cancel root, restart", cancels("", parentID), restarts("", parentID)))
	return w
}

// over is the world of a graph: two nodes execute, one of them has lost its worker, a third waits
// for both, and a fourth has a child.
func over(name, root string) world {
	node := func(name string, more ...string) []string {
		return with(with(more, ofParent...), "depth", "1", "node", "'"+name+"'")
	}
	setup := []string{
		root,
		row(subjectID, node("a", with(executing, "claim_token", "11", "partition_key", "'k'")...)...),
		row(siblingID, node("b", with(expired, "claim_token", "12", "crashes", "1")...)...),
		row(followerID, node("c", "status", "'awaiting_children'", "children_pending", "2")...),
		row(nephewID, node("e", with(executing, "claim_token", "17", "visit", "1", "round", "1")...)...),
		row(grandchildID, with(executing, "visit", "1", "depth", "2", "parent_id", "7", "parent_round", "1", "claim_token", "19")...),
		"INSERT INTO gendurable.edges VALUES (2, 4, 0), (3, 4, 0)",
	}
	claim := func(id, token, visit int64, name, key string) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: visit, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1, Node: name, PartitionKey: key}
	}
	a, e := claim(subjectID, 11, 0, "a", "k"), claim(nephewID, 17, 1, "e", "")
	return world{name: name, setup: setup, rests: true, only: func(v verb) bool { return v.family == "rest" }, verbs: []verb{
		cancelsRest("rest"), skips("skip"),
		commits("done", false, done(a)), commits("stop, slow", true, stopped(a)), ofTheParent(commits("adds", true, adding(done(a)))),
		ofTheParent(commits("node spawns", false, spawns(e, spec("", "")))), reaps("reap to the limit", 1),
		cancels("cancel node", subjectID), cancels("cancel root", parentID), cancelsFamily("cancel family", parentID), restarts("restart", parentID),
		holds("hold root", parent, parentID), holds("hold waiting", subject|parent, followerID),
	}}
}

func losing(name, waits string) world {
	child := with(executing, "visit", "1", "depth", "1", "parent_id", "1", "parent_round", "1")
	setup := []string{
		waits,
		row(subjectID, with(child, "claim_token", "11", "partition_key", "'k'")...),
		row(siblingID, with(with(expired, ofParent...), "claim_token", "12", "visit", "1", "crashes", "1", "depth", "1")...),
		follower("1", "1"),
		row(nephewID, with(child, "claim_token", "17", "round", "1")...), row(nephewID+1, with(child, "claim_token", "18")...),
		row(grandchildID, with(executing, "visit", "1", "depth", "2", "parent_id", "7", "parent_round", "1", "claim_token", "19")...),
	}
	claim := func(id, token, parent int64, key string) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: 1, Step: "s", Queue: "default", Parent: parent, ParentRound: 1, Depth: 1, PartitionKey: key}
	}
	one, two, three, below := claim(subjectID, 11, 1, "k"), claim(nephewID, 17, 1, ""), claim(nephewID+1, 18, 1, ""), claim(grandchildID, 19, 7, "")
	return world{name: name, setup: setup, rests: true, only: func(v verb) bool { return v.family == "rest" }, verbs: []verb{
		cancelsRest("rest"),
		commits("done", false, done(one)), commits("done, slow", true, done(one)), commits("both done", false, done(one), done(three)),
		ofTheParent(commits("nephew spawns", false, spawns(two, spec("", "")))), ofTheParent(commits("grandchild done", false, done(below))),
		reaps("reap to the limit", 1), cancels("cancel child", subjectID), cancels("cancel parent", parentID), cancelsFamily("cancel family", parentID),
		inTurn("cancel child, retry", cancels("", nephewID+1), revives("", nephewID+1)),
		holds("hold parent", parent, parentID), holds("hold nephew", parent, nephewID),
	}}
}

// ofTheParent says that a verb is about rows that a sweep of the rest locks.
func ofTheParent(v verb) verb {
	v.touches |= parent
	return v
}

// cancelsRest is a sweep of the children that no join waits for any more.
func cancelsRest(name string) verb {
	return verb{name: name, family: "rest", touches: subject | key | parent, quick: true, run: func(ctx context.Context, s *session) {
		s.insist(name, s.cancelRest(ctx), s.cancelRest)
	}}
}

// cancelRest sweeps until a pass finds nothing.
func (s *session) cancelRest(ctx context.Context) error {
	for again := true; again; {
		mark := uuid.NewString()
		s.facts.mark(mark, s.name, kindRest)
		got, err := s.db.CancelRest(ctx, mark, 0, 100)
		if err != nil {
			return err
		}
		if len(got.Refused) > 0 {
			s.fault("rows that cannot be cancelled: %v", got.Refused)
		}
		s.promoteMissed(got.Missed)
		again = len(got.Cancelled) > 0
	}
	return nil
}
