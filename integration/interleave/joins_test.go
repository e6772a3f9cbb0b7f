package interleave

import (
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// quorum is the world of a join with a policy: a parent of four children goes on when two of them
// are done, when two have failed, at a signal, or now, since its time is over.
func quorum() world {
	child := with(executing, "visit", "1", "depth", "1", "parent_id", "1", "parent_round", "1")
	setup := []string{
		row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "4", "join_round", "1", "join_size", "4",
			"join_done", "0", "join_failed", "0", "wake_done", "2", "wake_failed", "2", "awaits", "'{go}'", "await_deadline", "now() - interval '1 s'"),
		row(subjectID, with(child, "claim_token", "11")...),
		row(siblingID, with(with(expired, ofParent...), "claim_token", "12", "visit", "1", "crashes", "1", "depth", "1")...),
		row(nephewID, with(child, "claim_token", "17")...), row(nephewID+1, with(child, "claim_token", "18")...),
	}
	claim := func(id, token int64) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: 1, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1}
	}
	one, two, three := claim(subjectID, 11), claim(nephewID, 17), claim(nephewID+1, 18)
	return world{name: "quorum", setup: setup, verbs: []verb{
		commits("done", false, done(one)), commits("stop", false, stopped(one)), commits("done, slow", true, done(one)),
		transacts("own: done", done(one)), commits("another done", false, done(two)), commits("another stop", false, stopped(two)),
		commits("both done", false, done(two), done(three)), commits("one done, one stops, slow", true, done(two), stopped(three)),
		reaps("reap to the limit", 1), cancels("cancel child", subjectID), cancels("cancel parent", parentID),
		inTurn("cancel parent, retry", cancels("", parentID), revives("", parentID)), cancelsFamily("cancel family", parentID),
		delivers("signal parent", byID(parentID), "go", ""), signals("signal parent by function", byID(parentID), "go", ""), timesOut(),
		holds("hold parent", parent, parentID), claims("claim", "default", owner, 10),
	}}
}

// rejoined is the world of a Rejoin: a parent executes that has gone on before any of its four
// children has ended, and waits for them again.
func rejoined() world {
	child := with(executing, "visit", "1", "depth", "1", "parent_id", "1", "parent_round", "1")
	setup := []string{
		row(parentID, with(executing, "visit", "1", "round", "1", "claim_token", "13", "children_pending", "4", "join_round", "1",
			"join_size", "4", "join_done", "0", "join_failed", "0")...),
		row(subjectID, with(child, "claim_token", "11")...),
		row(siblingID, with(with(expired, ofParent...), "claim_token", "12", "visit", "1", "crashes", "1", "depth", "1")...),
		row(nephewID, with(child, "claim_token", "17")...), row(nephewID+1, with(child, "claim_token", "18")...),
	}
	claim := func(id, token int64) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: 1, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1}
	}
	c := &step.Claim{ID: parentID, Token: 13, Visit: 1, Round: 1, JoinsAt: 1, Step: "s", Queue: "default"}
	one, two, three := claim(subjectID, 11), claim(nephewID, 17), claim(nephewID+1, 18)
	parked := func(name string, slow bool, entries ...store.Entry) verb {
		v := ofTheParent(commits(name, slow, entries...))
		v.family = "rejoin"
		return v
	}
	return world{name: "rejoined", setup: setup, only: func(v verb) bool { return v.family == "rejoin" }, verbs: []verb{
		parked("rejoin", false, rejoins(c, step.Join{})), parked("rejoin, race", false, rejoins(c, step.Join{Ended: 1})),
		parked("rejoin, quorum, slow", true, rejoins(c, step.Join{Done: 2, Names: []string{"go"}, At: time.Unix(1, 0)})),
		parked("rejoin beside a child", false, rejoins(c, step.Join{Failed: 3}), done(one)),
		parked("rejoin beside a child, slow", true, rejoins(c, step.Join{Failed: 1}), done(one), stopped(two)),
		ofTheParent(commits("done", false, done(one))), ofTheParent(commits("stop", false, stopped(one))),
		ofTheParent(commits("both done", false, done(two), done(three))), ofTheParent(commits("one done, one stops, slow", true, done(two), stopped(three))),
		reaps("reap to the limit", 1), cancels("cancel child", subjectID), cancels("cancel parent", parentID),
		inTurn("cancel child, retry", cancels("", nephewID+1), revives("", nephewID+1)),
		delivers("signal parent", byID(parentID), "go", ""), timesOut(), holds("hold parent", parent, parentID),
	}}
}

func rejoins(c *step.Claim, j step.Join) store.Entry {
	return policed(entry(c, step.Commit{Kind: step.Rejoin, Step: "t"}), j)
}

// policed parks its instance under a policy.
func policed(e store.Entry, j step.Join) store.Entry {
	e.Commit.Join = &j
	return e
}
