package model_test

var restartMutants = []mutant{
	{"a root does not wait for what runs again", "operate_restart.go", "SET children_pending = g.children_pending + u.more,", "SET children_pending = g.children_pending,"},
	{"what runs again is counted no more", "operate_restart.go", "joined = CASE WHEN u.counted THEN NULL ELSE g.joined END", "joined = g.joined"},
	{"what runs again still counts as failed", "operate_restart.go", "THEN greatest(g.join_failed - u.failed, 0)", "THEN g.join_failed"},
	{"a restarted root fails fast again", "operate_restart.go", "wake_failed = CASE WHEN NOT u.round THEN g.wake_failed END", "wake_failed = g.wake_failed"},
	{"a restarted root keeps its rest", "operate_restart.go", "CASE WHEN u.graph THEN ARRAY[g.round]", "CASE WHEN u.graph THEN ARRAY[]::bigint[]"},
	{"what runs again is over its deadline", "operate_restart.go", "deadline = CASE WHEN g.finished_at IS NULL OR g.deadline > (SELECT clock_timestamp()) THEN g.deadline END", "deadline = g.deadline"},
	{"what waits again forgets its pause", "operate_restart.go", "paused = g.paused AND g.finished_at IS NULL", "paused = false"},
	{"what waits again is due anew", "operate_restart.go", "WHEN u.waits AND g.finished_at IS NULL THEN g.eligible_at", "WHEN false THEN g.eligible_at"},
	{"what was woken runs", "operate_restart_plan.go", "OR x.status = 'runnable' AND NOT", "OR x.status = 'done' AND NOT"},
	{"a node that asked to run again has not begun", "commit_graph.go", "x.crashes > 0 OR x.commit_id IS NOT NULL)", "x.crashes > 0)"},
	{"a released node has not begun", "lease.go", "WHEN g.id = ANY($4::bigint[])", "WHEN false AND g.id = ANY($4::bigint[])"},
	{"what was skipped stays so", "operate_restart_plan.go", "g.hinders[to] == 0 &&", "g.hinders[to] < 0 &&"},
	{"what was skipped for two runs for one", "operate_restart_plan.go", "g.hinders[to] == 0 &&", "g.hinders[to] >= 0 &&"},
	{"what is about to be skipped is", "operate_restart_plan.go", "const toSkip = `(x.node", "const toSkip = `(false AND x.node"},
	{"a recount takes what runs again for over", "operate_restart_plan.go", "case e.state == 0 || g.runs[e.from]:", "case e.state == 0:"},
	{"a recount of a quorum takes what runs again for over", "operate_restart_plan.go", "case e.any && (e.state == 0 || g.runs[e.from]):", "case e.any && e.state == 0:"},
	{"a recount takes every edge for met", "operate_restart_plan.go", "WHEN e.needs = {needs end} OR (e.needs <> {needs failed}) = (o.status = 'done') THEN 1", "WHEN e.needs >= 0 THEN 1"},
	{"a restart goes not down", "operate_restart_plan.go", `if p.status == "failed" && p.below() != 0 {`, `if p.status == "failed" && p.below() < 0 {`},
}
