package interleave

import (
	"context"

	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// unkept is the world of a family of which no member is to be kept when it is done. The parent
// awaits the subject and the sibling, who execute. Another parent executes as well; its child still
// does. A row whose result another instance may have to read stays, with any retention.
func unkept() world {
	const atOnce = "'{0,-1,-1}'"
	mother := &step.Claim{ID: secondID, Token: 16, Visit: 4, Round: 4, Step: "s", Queue: "default"}
	niece := &step.Claim{ID: nephewID, Token: 17, Visit: 1, Step: "s", Queue: "default", Parent: secondID, ParentRound: 4, Depth: 1}
	subject := *subjectClaim
	subject.Awaited, subject.PartitionKey, subject.CorrelationKey = nil, "", ""
	setup := []string{
		row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "2", "retain", atOnce, "awaits", "'{go}'",
			"join_round", "1", "join_size", "2", "join_done", "0", "join_failed", "0", "wake_done", "2"),
		row(subjectID, with(with(expired, ofParent...), "claim_token", "11", "visit", "3", "depth", "1", "retain", atOnce)...),
		row(siblingID, with(with(executing, ofParent...), "claim_token", "12", "visit", "1", "depth", "1", "retain", atOnce)...),
		row(secondID, with(executing, "claim_token", "16", "visit", "4", "round", "4", "retain", atOnce)...),
		row(nephewID, with(executing, "parent_id", "6", "parent_round", "4", "claim_token", "17", "visit", "1", "depth", "1", "retain", atOnce)...),
	}
	ends := func(v verb) bool {
		return v.family == "commit" || v.family == "commit, slow lane" || v.family == "prune"
	}
	return world{name: "unkept", setup: setup, only: ends, verbs: []verb{
		commits("done", false, dropped(&subject)), commits("sibling done, slow", true, dropped(siblingClaim)),
		sole(commits("both done", false, dropped(&subject), dropped(siblingClaim))), at(parent, sole(commits("mother done", false, dropped(mother)))),
		at(parent, commits("niece done", false, dropped(niece))), joinsAfter("read the join"), waitsFor("wait", subjectID, secondID), prunes(),
		cancels("cancel", subjectID), cancels("cancel parent", parentID), cancelsFamily("cancel family", parentID), reaps("reap to the limit", 1),
		delivers("signal parent", byID(parentID), "go", ""), holds("hold parent", parent, parentID), claims("claim", "default", owner, 10),
	}}
}

// joinsAfter reads what a joining step reads: once the parent goes on, each child is there.
func joinsAfter(name string) verb {
	return verb{name: name, family: "read", touches: subject | parent, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			p, err := query.New(s.db).Get(ctx, store.Address{ID: parentID})
			if err != nil {
				return err
			}
			children, _, err := s.db.Round(ctx, parentID, 1)
			if err == nil && p.Status == "runnable" && len(children) != 2 {
				s.fault("the parent joins, and finds children %v", children)
			}
			return err
		}
		s.insist("read", once(ctx), once)
	}}
}

// waitsFor does what Wait does, until it finds its instances: one that has ended, or that is gone,
// is told; one that is told was not about to go on.
func waitsFor(name string, ids ...int64) verb {
	return verb{name: name, family: "read", touches: subject | parent, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			ended, err := s.db.Ended(ctx, ids)
			for _, id := range ended {
				s.facts.waited = append(s.facts.waited, []any{s.name, id})
			}
			return err
		}
		s.insist("wait", once(ctx), once)
	}}
}

// familyMutants are broken forms of the statements of this file.
var familyMutants = []mutant{
	{"GC of a child that its parent joins", "unkept/both done|prune", "result lost",
		text("WHERE p.id = g.parent_id AND p.round = g.parent_round\n", "WHERE false AND p.id = g.parent_id AND p.round = g.parent_round\n")},
	{"wait that is told too early", "unkept/done|wait", "told ended", of("SELECT u.id FROM unnest($1::bigint[])", text("g.status IN ('done', 'failed')", "true"))},
}
