package interleave

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// brief bounds the wait of a portion for locked rows.
const brief = 20 * time.Millisecond

// streaming is the world of a stream: a parent executes that is shown the ends of its four children
// in portions of two, and waits for the next.
func streaming() world {
	child := with(executing, "visit", "1", "depth", "1", "parent_id", "1", "parent_round", "-1")
	setup := []string{
		row(parentID, with(executing, "visit", "1", "round", "-1", "claim_token", "13", "children_pending", "4", "join_round", "1",
			"join_size", "4", "join_done", "0", "join_failed", "0", "wake_ended", "1", "stream_most", "2")...),
		row(subjectID, with(child, "claim_token", "11")...),
		row(siblingID, with(with(expired, "parent_id", "1", "parent_round", "-1"), "claim_token", "12", "visit", "1", "crashes", "1", "depth", "1")...),
		row(nephewID, with(child, "claim_token", "17")...), row(nephewID+1, with(child, "claim_token", "18")...),
	}
	claim := func(id, token int64) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: 1, Step: "s", Queue: "default", Parent: parentID, ParentRound: -1, Depth: 1}
	}
	c := &step.Claim{ID: parentID, Token: 13, Visit: 1, Round: -1, JoinsAt: 1, Step: "s", Queue: "default"}
	one, two, three := claim(subjectID, 11), claim(nephewID, 17), claim(nephewID+1, 18)
	next := func() store.Entry { return rejoins(c, step.Join{Ended: 1, Stream: 2}) }
	return world{name: "streaming", setup: setup, verbs: []verb{
		takes("portion", c), inTurn("portion, rejoin", takes("", c), ofTheParent(commits("", false, next()))),
		inTurn("done, portion twice", ofTheParent(commits("", false, done(three))), takes("", c), takes("", c)),
		inTurn("portion twice, rejoin", takes("", c), takes("", c), ofTheParent(commits("", true, next()))),
		inTurn("portion, rejoin beside a child", takes("", c), ofTheParent(commits("", false, next(), done(one)))),
		ofTheParent(commits("rejoin for all", false, rejoins(c, step.Join{}))),
		ofTheParent(commits("done", false, done(one))), ofTheParent(commits("stop, slow", true, stopped(one))),
		ofTheParent(commits("both done", false, done(two), done(three))),
		inTurn("one done, then another", ofTheParent(commits("", true, done(two))), ofTheParent(commits("", true, done(three)))),
		reaps("reap to the limit", 1), cancels("cancel child", subjectID), cancels("cancel parent", parentID),
		holds("hold parent", parent, parentID), claims("claim", "default", owner, 10),
	}}
}

// takes reads the portion of a stream, as before a step.
func takes(name string, c *step.Claim) verb {
	return verb{name: name, family: "stream", touches: subject | parent, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.Portion(ctx, c, brief)
			return err
		}
		s.insist("portion", once(ctx), once)
	}}
}
