package model_test

var graphMutants = []mutant{
	{"an edge that is not met counts as met", "commit_graph.go",
		"count(*) FILTER (WHERE e.needs = {needs end} OR e.needs < {needs any} AND (e.needs = {needs done}) = (k.status = 'done'))::int AS ok", "count(*) FILTER (WHERE e.needs < {needs any})::int AS ok"},
	{"any edge wakes", "commit_graph.go", "x.children_pending <= d.n + ` + quorumMet + `::int OR d.ok < d.n OR", "true OR"},
	{"an edge that is not met wakes nobody", "commit_graph.go", "` + quorumMet + `::int OR d.ok < d.n OR", "` + quorumMet + `::int OR"},
	{"a quorum that is met is not counted", "commit_graph.go", "d.n - l.enough, 0)", "d.n, 0)"},
	{"a quorum that is lost wakes nobody", "commit_graph.go", "d.ok < d.n OR ` + quorumLost + ` AS wakes", "d.ok < d.n AS wakes"},
	{"a quorum is met again and again", "commit_graph.go", "x.join_done < x.wake_done AND x.join_done + d.yes", "x.join_done + d.yes"},
	{"failures count for a quorum", "commit_graph.go", "(WHERE e.needs = {needs any} AND k.status = 'done')::int AS yes", "(WHERE e.needs = {needs any})::int AS yes"},
	{"a skip counts as a failure", "commit_riders.go", "(WHERE k.status <> 'done' AND k.failure <> 'skipped')::int AS bad", "(WHERE k.status <> 'done')::int AS bad"},
	{"a node forgets its delay", "commit_graph.go", "THEN greatest(p.eligible_at, (SELECT clock_timestamp()))", "THEN (SELECT clock_timestamp())"},
	{"edges one at a time", "commit_graph.go", "SELECT e.to_id, count(*) FILTER (WHERE e.needs < {needs any})::int AS n,", "SELECT e.to_id, max((e.needs < {needs any})::int) AS n,"},
	{"a node runs though its edge is not met", "read_upstream.go", "coalesce(x.join_failed > 0, false) AS unmet", "false AS unmet"},
	{"a node begins though its root has ended", "read_upstream.go", "x.finished_at IS NOT NULL AS over", "false AS over"},
	{"a reap settles no edges", "sweep_reap.go", "if over && node {", "if over && node && false {"},
	{"a cancel settles no edges", "operate_cancel.go", "if r.node {", "if r.node && false {"},
	{"the GC takes what a node waits for", "sweep_prune.go", "AND x.visit = 0 AND x.finished_at IS NULL", "AND false"},
	{"the GC leaves edges", "sweep_prune.go", "SELECT d.id FROM d WHERE d.node IS NOT NULL", "SELECT d.id FROM d WHERE d.node IS NULL"},
	{"a node is redriven", "operate.go", "r.node && (o.Verb == Retry ||", "r.node && ("},
	{"a waiting node gets new keys", "operate.go", " || o.NewKeys && r.first", ""},
}
