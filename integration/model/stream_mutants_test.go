package model_test

var streamMutants = []mutant{
	{"an end draws no number", "commit_riders.go", "x.parent_round < 0 OFFSET", "false OFFSET"},
	{"a commit numbers no ends", "commit_batch.go", "b.joiners.add(c.ID, e.streamed())", "b.joiners.add(c.ID, false)"},
	{"a reap numbers no ends", "sweep_reap.go", "joiners.add(id, streamed)", "joiners.add(id, streamed && false)"},
	{"a deadline numbers no ends", "sweep_expire.go", "joiners.add(id, streamed)", "joiners.add(id, streamed && false)"},
	{"a cancel numbers no ends", "operate_cancel.go", "joiners.add(r.id, r.streamed)", "joiners.add(r.id, false)"},
	{"a lost rest is not numbered", "sweep_rest.go", "l.streamed || streamed", "l.streamed"},
	{"a portion grows", "commit_stream.go", " AND NOT EXISTS (SELECT FROM k WHERE k.stream_visit = $3::bigint)", ""},
	{"a portion has one more", "commit_stream.go", "LIMIT $4::int))", "LIMIT $4::int + 1))"},
	{"the first children are shown", "commit_stream.go", "ORDER BY k.stream_nth, k.finished_at, k.id", "ORDER BY k.id"},
	{"a portion by ids", "commit_stream.go", "array_agg(x.id ORDER BY x.stream_nth, x.finished_at, x.id)", "array_agg(x.id ORDER BY x.id)"},
	{"shown before its end", "commit_stream.go", "WHERE k.joined IS NOT NULL AND k.stream_visit IS NULL", "WHERE k.stream_visit IS NULL"},
	{"a void claim is shown a portion", "commit_stream.go", "AND x.claim_token = $2 AND x.visit = $3 AND coalesce(x.status = 'executing', false)",
		"AND (true OR x.claim_token = $2 AND x.visit = $3)"},
	{"what was shown is left", "commit_stream.go", "count(*) FILTER (WHERE x.stream_visit IS NULL)", "count(*) FILTER (WHERE x.id > 0)"},
	{"a Rejoin sleeps beside what was not shown", "commit_join.go", "ELSE u.unshown END", "ELSE 0 END"},
	{"a Rejoin wakes for what was shown", "commit_join.go", "AND k.stream_visit IS NULL)::int AS unshown", ")::int AS unshown"},
	{"a Rejoin of all shows a portion", "commit_join.go", "stream_most = u.stream", "stream_most = coalesce(u.stream, g.stream_most)"},
	{"children read by ids", "read.go", "either(asListed, `q.through`,", "either(false, `q.through`,"},
	{"new keys at a portion", "operate.go", "g.round <> 0 AND `", "g.round > 0 AND `"},
}
