package interleave

// keptMutants are broken forms of what kept_test.go is about.
var keptMutants = []mutant{
	{"keep beside who came first", "keeping/keep|insert", "kept beside its occupant",
		text("nullif(current_setting('gendurable.held', true), '') IS NOT NULL AS held", "true AS held")},
	{"hand over that waits", "keeping/hand over|hold the nephew", "waited", of("FOR UPDATE OF k SKIP", text("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE"))},
	{"expiry of what somebody has", "keeping/prune|hold the nephew", "kept signal lost",
		text("AND g.inserted_at < x.expires_at OFFSET 0", "AND g.inserted_at > x.expires_at OFFSET 0")},
	{"kept signals for nobody", "keeping/insert|keep", "kept signal lost", text("k.trace, k.inserted_at FROM k ORDER", "k.trace, k.inserted_at FROM k WHERE k.dedup_key IS NULL ORDER")},
	{"drop that waits for a host", "dropping/done|refer", "hidden", of("AND x.status = 'done'\n  FOR UPDATE", text("FOR UPDATE SKIP LOCKED", "FOR UPDATE"))},
	{"drop of who goes on", "dropping/done, unless|signal stop", "live row deleted",
		text("AND x.commit_id = $2::uuid AND x.status = 'done'\n", "AND x.commit_id = $2::uuid\n")},
	{"drop of what is stale", "dropping/done|reap", "live row deleted",
		text("AND x.commit_id = $2::uuid AND x.status = 'done'\n", "AND $2::uuid IS NOT NULL\n")},
}
