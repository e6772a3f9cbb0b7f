package interleave

// versionMutants are broken forms of what versions_test.go is about.
var versionMutants = []mutant{
	{"edit that compares nothing", "edited asleep/edit|rewind, as it is", "written over",
		text("AND g.fsm_version = u.version\n    AND g.visit = u.visit AND g.state = u.old::jsonb", "")},
	{"edit of another state", "edited asleep/edit|edit", "written over", of("'admin.edit'", text(" AND g.state = u.old::jsonb", ""))},
	{"edit of another visit", "edited asleep/edit|rewind, as it is", "written over", of("'admin.edit'", text("AND g.visit = u.visit ", ""))},
	{"edit of another version", "edited asleep/edit|migrate, state left", "written over", of("'admin.edit'", text("AND g.fsm_version = u.version", ""))},
	{"rewind of another version", "edited asleep/rewind|migrate, state left", "written over", of("'admin.rewind'", text("AND g.fsm_version = u.version", ""))},
	{"edit while a step runs", "edited runnable/edit|claim", "written over", text(append(anyStatus,
		"coalesce(g.status NOT IN ('executing', 'done'), false) AND", "")...)},
	{"edit that records what it did not do", "edited asleep/edit|edit", "edit not recorded", of("'admin.edit'", text(
		"FROM e)\nSELECT e.id FROM e", "FROM (SELECT x.id, x.visit, x.attempt, x.fsm_version, x.fsm, x.step AS left, x.step, '{}'::jsonb AS before, '{}'::jsonb AS after\n"+
			"    FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[])) e)\nSELECT e.id FROM e"))},
	{"rewind to the same visit", "edited asleep/rewind|signal go", "edit untold", of("'admin.rewind'", text("visit = g.visit + 1", "visit = g.visit"))},
	{"rewind that goes on waiting", "edited asleep/rewind parent|sibling done", "edit untold", of("'admin.rewind'", text("status = 'runnable'", "status = g.status"))},
	{"rewind without a promotion", "edited runnable/rewind|signal go", "key stands still", unpromoted("'admin.rewind'")},

	{"migration that compares nothing", "edited asleep/migrate|edit", "written over", of("'admin.migrate'", text("g.xmin = u.written", "u.written IS NOT NULL"))},
	{"migration of what executes", "edited runnable/migrate|claim", "written over", of("'admin.migrate'", text("g.xmin = u.written", "u.written IS NOT NULL",
		"coalesce(g.status NOT IN ('executing', 'done', 'failed'), false)", "true"))},
	{"migration that waits", "edited asleep/migrate|hold", "waited", of("'admin.migrate'", text("SKIP LOCKED", ""))},
	{"migration that records what it did not do", "edited asleep/migrate|edit", "edit not recorded", of("'admin.migrate'", text(
		"FROM moved m)", "FROM (SELECT x.id, x.visit, x.attempt, x.fsm, x.step, x.step AS was FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[])) m)"))},
	{"converted outcome without its fence", "strays/next, converted|reap", "unfenced outcome", of(fencedUpdate, text(
		"coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit", "$4::text IS NOT NULL"))},

	{"set aside without its fence", "strays/zombie: set aside|beat", "claim ended by a stranger", of("THEN 4 ELSE 0 END, aside_step", text("AND g.claim_token = u.token", ""))},
	{"set aside at the cost of an attempt", "strays/set aside|beat", "claim ended by a stranger",
		of("THEN 4 ELSE 0 END, aside_step", text("aside_step = g.step,", "aside_step = g.step, attempt = g.attempt + 1,"))},
	{"set aside nowhere", "strays/set aside|beat", "stray out of shape", of("THEN 4 ELSE 0 END, aside_step", text("aside_step = g.step,", "aside_step = 'elsewhere',"))},
	{"pause of what cannot be converted without a promotion", "strays/set aside, faulty|beat", "key stands still", unpromoted("THEN 4 ELSE 0 END, aside_step")},
	{"recall that waits", "strays/recall|hold stray", "waited", of("AND g.pick_lane = 4 AND coalesce", text("SKIP LOCKED", ""))},
}
