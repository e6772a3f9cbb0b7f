package interleave

import (
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const behindID = 8 // a node that waits behind one that adds others

// extended is the world of a graph that is restarted while nodes of it add others: a has failed, e
// was skipped and g woken for that, c waits for b, and h for d. What b adds waits for a and for c,
// and e and h for it; what d adds waits for e and h, and c for it: both together would be a cycle.
func extended() world {
	node := func(name string, more ...string) []string {
		return with(with(more, ofParent...), "depth", "1", "node", "'"+name+"'")
	}
	over := func(failure string) []string {
		return []string{"status", "'failed'", "failure", "'" + failure + "'", "finished_at", "now() - interval '2 h'", "joined", "'00000000-0000-0000-0000-000000000001'"}
	}
	setup := []string{
		row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "5", "join_round", "1",
			"join_size", "7", "join_done", "0", "join_failed", "1", "graphs", "'{1}'"),
		row(subjectID, node("a", over("error")...)...),
		row(siblingID, node("b", with(expired, "claim_token", "12", "crashes", "1")...)...),
		row(followerID, node("c", "status", "'awaiting_children'", "children_pending", "1")...),
		row(strangerID, node("d", with(executing, "claim_token", "15")...)...),
		row(skippedID, node("e", with(over("skipped"), "join_failed", "1")...)...),
		row(wokenID, node("g")...),
		row(behindID, node("h", "status", "'awaiting_children'", "children_pending", "1")...),
		"INSERT INTO gendurable.edges VALUES (2, 4, 1), (3, 4, 0), (2, 6, 0), (2, 7, 2), (5, 8, 1)",
	}
	claim := func(id, token int64, name string) *step.Claim {
		return &step.Claim{ID: id, Token: token, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1, Node: name}
	}
	b, d := claim(siblingID, 12, "b"), claim(strangerID, 15, "d")
	adds := func(name string, e store.Entry, add func(store.Entry) store.Entry) verb {
		v := ofTheParent(commits(name, true, add(e)))
		v.family = "addition"
		return v
	}
	return world{name: "extended", setup: overdue(setup, followerID), only: func(v verb) bool { return v.family == "restart" }, verbs: []verb{
		restarts("restart", parentID), restarts("restart node", subjectID),
		adds("adds", done(b), forth), adds("stop that adds", stopped(b), forth), adds("next that adds", next(b), forth),
		adds("adds back", next(d), back), adds("adds before a woken one", next(d), ahead("g")), adds("adds what is there", next(d), ahead("c")),
		cancels("cancel root", parentID), claims("claim", "default", owner, 10), holds("hold waiting", subject|parent, followerID),
	}}
}

// forth lets an outcome add x, which is to be done between a and c, and y, between c and both e and
// h.
func forth(e store.Entry) store.Entry {
	return addition(e, step.Graph{Nodes: []string{"x", "y", "a", "c", "e", "h"},
		Edges: []step.Edge{{From: 2, To: 0}, {From: 0, To: 3}, {From: 3, To: 1, Needs: step.NeedsEnd}, {From: 1, To: 4}, {From: 1, To: 5}}})
}

// back lets an outcome add z, which waits for e and h, and for which c waits.
func back(e store.Entry) store.Entry {
	return addition(e, step.Graph{Nodes: []string{"z", "e", "h", "c"}, Edges: []step.Edge{{From: 1, To: 0, Needs: step.NeedsEnd},
		{From: 2, To: 0, Needs: step.NeedsEnd}, {From: 0, To: 3, Needs: step.NeedsEnd}}})
}

// ahead lets an outcome add x, which another outcome may have added, before a node.
func ahead(name string) func(store.Entry) store.Entry {
	return func(e store.Entry) store.Entry {
		return addition(e, step.Graph{Nodes: []string{"x", "a", name}, Edges: []step.Edge{{From: 1, To: 0}, {From: 0, To: 2}}})
	}
}

func addition(e store.Entry, g step.Graph) store.Entry {
	e.Commit.Add = &step.Additions{Most: 100, Graph: g}
	for _, name := range g.Nodes {
		if name == "x" || name == "y" || name == "z" {
			e.Commit.Add.Specs = append(e.Commit.Add.Specs, spec("", ""))
		}
	}
	return e
}

// extendedMutants are broken forms of additions.
var extendedMutants = []mutant{
	{"addition that locks nothing", "extended/next that adds|adds back", "waits for itself", of("t.node = ANY($5::text[])", text("ORDER BY x.id FOR NO KEY UPDATE", "ORDER BY x.id"))},
	{"addition that the root does not count", "extended/adds|restart", "barrier", text("SET children_pending = p.children_pending + $3::int", "SET children_pending = p.children_pending")},
	{"addition that a policy does not count", "extended/adds|restart", "policy miscounted", text("THEN p.join_size + $3::int", "THEN p.join_size")},
	{"addition for which nobody waits", "extended/adds|restart", "node miscounted", text("SET children_pending = p.children_pending + u.n", "SET children_pending = p.children_pending")},
	{"addition behind an end that it does not see", "extended/adds|claim", "node overslept", of("unnest($1::bigint[], $3::bigint[]) AS u(id, to_id)", text("WHERE k.joined <> $2::uuid", "WHERE k.joined <> $2::uuid AND false"))},
	{"addition before what has begun", "extended/adds before a woken one|restart", "added edge lost", text("x.status = 'failed' OR x.visit = 0 AND coalesce(x.join_failed > 0, false)\nFROM", "true\nFROM")},
	{"addition that looks for no cycle", "extended/adds|adds back", "waits for itself", of("SELECT f.node, t.node FROM r", text("SELECT unnest($1::bigint[]) UNION", "SELECT unnest($1::bigint[]) WHERE false UNION"))},
	{"addition to what is over", "extended/cancel root|adds", "added to what is over", text("SELECT x.finished_at IS NOT NULL, CASE WHEN x.round = $2::bigint", "SELECT false, CASE WHEN x.round = $2::bigint")},
}
