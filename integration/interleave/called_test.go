package interleave

import (
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// called is the world of a call of a batch step, which serves three claims of one worker. The
// subject and its sibling are children of one parent, and have places of one value of a label. The
// third has a place of another value. All places of all values are taken, others are in line, and a
// follower waits behind the subject's partition key.
//
// A call sends no separate statement, and nothing of it is stored. So what differs from other steps
// is only that the claims of several instances end together: in one batch, or one after another,
// with outcomes of all kinds. Meanwhile each member may be lost, paused or held, and the others'
// outcomes have to count all the same.
func called() world {
	member := func(id, token, visit, parent int64, value string) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: visit, Step: "s", Queue: "default", Parent: parent, ParentRound: parent, Depth: int(parent),
			Gate: "g/" + value, Labels: map[string]string{"c": value}}
	}
	one, two, three := member(subjectID, 11, 3, parentID, "a"), member(siblingID, 12, 1, parentID, "a"), member(secondID, 16, 1, 0, "b")
	one.PartitionKey = "k"
	child := with(ofParent, "depth", "1")
	g := store.Gate{Name: "g", Label: "c", Places: 2, Total: 3}
	setup := []string{
		`INSERT INTO gendurable.gates (name, label, places, total) VALUES ('g', 'c', 2, 3)`, parked,
		row(subjectID, with(with(with(placed("gate", "'g/a'", "place", "1", "partition_key", "'k'"), labelled("a")...), child...), "awaits", "'{go}'")...),
		row(siblingID, with(with(with(executing, "claim_token", "12", "visit", "1", "gate", "'g/a'", "place", "2"), labelled("a")...), child...)...),
		row(secondID, with(with(expired, "claim_token", "16", "visit", "1", "gate", "'g/b'", "place", "1"), labelled("b")...)...),
		row(followerID, with(labelled("a"), "partition_key", "'k'", "pick_lane", "1", "eligible_at", "now() - interval '5 s'")...),
		inLine(abroadID, "g/a", 2, labelled("a")...), inLine(freedID, "g/b", 3, labelled("b")...),
	}
	retry := func(c *step.Claim) store.Entry {
		return entry(c, step.Commit{Kind: step.Retry, Step: "s", Delay: time.Hour, Err: "the call failed"})
	}
	return world{name: "called", setup: setup, heeds: true, only: func(v verb) bool { return strings.HasPrefix(v.name, "call ") }, verbs: []verb{
		ofTheCall("call ends all", commits("", false, done(one), done(two), done(three))),
		ofTheCall("call decides for each", sole(commits("", false, next(one), retry(two), stopped(three)))),
		ofTheCall("call parks and spawns", sole(commits("", false, awaits(one, "t", "go"), spawns(two, spec("", "k"), spec("", "")), done(three)))),
		ofTheCall("call fails", sole(commits("", false, retry(one), retry(two), retry(three)))),
		ofTheCall("call ends one after another", sole(inTurn("", commits("", false, done(one)), commits("", false, next(three))))),
		gatedClaims("claim", "w2", "default"), reaps("reap", 0), inTurn("reap, claim", reaps("", 0), gatedClaims("", "w4", "default")),
		cancels("cancel sibling", siblingID), cancelsFamily("cancel family", parentID),
		operates("pause", store.Pause, subjectID), beats("beat", one), leaves("release", releases("", one)),
		holds("hold sibling", subject|key|parent, siblingID), holds("hold parent", parent, parentID), delivers("signal", byID(subjectID), "go", ""),
		inTurn("raise, claim", changes("", g, func(g *store.Gate) { g.Places, g.Total = 3, 5 }), gatedClaims("", "w4", "default")),
	}}
}

// ofTheCall says that outcomes are of all members, whose places others wait for.
func ofTheCall(name string, v verb) verb {
	v.name, v.mayMeetKey = name, true
	v.touches |= subject | key | parent
	return v
}

// callMutants are broken forms of how the claims of one call end.
var callMutants = []mutant{
	{"one child of a call joins", "called/call ends all|beat", "barrier", of("p.children_pending - l.n", text("count(*)::int AS n", "1 AS n"))},
	{"one place of a call comes free", "called/call decides for each|claim", "place kept",
		of(fencedUpdate, text("  gate = NULL,\n  place = NULL,\n",
			"  gate = CASE WHEN g.place > 1 THEN g.gate END,\n  place = CASE WHEN g.place > 1 THEN g.place END,\n"))},
	{"lost member decided with its call", "called/call decides for each|reap", "unfenced outcome", of(fencedUpdate, text(
		"coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit", "$4::text IS NOT NULL"))},
	{"call that waits for a member", "called/call decides for each|hold sibling", "waited",
		of(fencedUpdate, text("FOR NO KEY UPDATE SKIP LOCKED) AS tid", "FOR NO KEY UPDATE) AS tid"))},
}
