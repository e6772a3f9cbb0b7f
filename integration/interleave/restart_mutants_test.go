package interleave

// restartMutants are broken forms of restarts.
var restartMutants = []mutant{
	{"restart that does not let the root wait", "restart/restart|done", "barrier", of("g.children_pending + u.more", text("g.children_pending + u.more", "g.children_pending"))},
	{"restart that is counted once only", "restart/restart|done", "barrier", text("joined = CASE WHEN u.counted THEN NULL ELSE g.joined END", "joined = g.joined")},
	{"restart that forgets what has failed", "restart/restart node|stop, slow", "policy miscounted",
		of("g.children_pending + u.more", text("greatest(g.join_failed - u.failed, 0)", "g.join_failed"))},
	{"skip that counts as a failure", "restart/skip|pause woken", "policy miscounted", text("k.status <> 'done' AND k.failure <> 'skipped'", "k.status <> 'done'")},
	{"restart that leaves what was skipped", "restart/restart|done", "skipped for nothing", text("AND x.status = 'failed' OFFSET 0) x", "AND x.failure = 'error' OFFSET 0) x")},
	{"restart that leaves what is about to be skipped", "restart/restart|skip", "skipped for nothing",
		text("x.status = 'awaiting_children' OR x.status = 'runnable' AND", "x.status = 'awaiting_children' OR x.status = 'runnable' AND x.pick_lane = 0 AND")},
	{"restart that leaves what was woken", "restart/restart|done", "node begun early", text("x.status = 'awaiting_children' OR x.status = 'runnable'", "x.status = 'awaiting_children' OR x.status = 'done'")},
	{"restart that locks nothing", "restart/restart|restart node", "barrier", text("ORDER BY g.id FOR NO KEY UPDATE OF g", "ORDER BY g.id")},
	{"restart of what a claim has begun", "restart/restart|claim", "strange move", text("x.status = 'runnable' AND NOT (x.attempt > 0 OR x.crashes > 0 OR x.commit_id IS NOT NULL)", "x.status IN ('runnable', 'executing')")},
	{"skip without a gate for the root", "restart/skip|hold root, waiting", "waited", of("'skipped: ' ||", text("AND p.open", ""))},
	{"skip that waits", "restart/restart|skip", "waited", of("'skipped: ' ||", text("FOR NO KEY UPDATE OF x SKIP LOCKED)", "FOR NO KEY UPDATE OF x)", "AND p.open", ""))},
	{"skip of what waits again", "restart/restart|skip", "unfenced outcome", of("'skipped: ' ||", text("x.status = 'runnable' AND NOT x.paused AND x.pick_lane = 5", "x.node IS NOT NULL AND x.pick_lane = 5 OR x.status = 'awaiting_children'"))},
	{"restart that skips a recount", "restart/restart|done", "node woke early", of("g.children_pending + u.more", text("g.children_pending + u.more", "g.children_pending + CASE WHEN u.failed > 0 THEN u.more ELSE 0 END"))},
}
