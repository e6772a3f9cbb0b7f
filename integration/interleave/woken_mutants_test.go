package interleave

// wokenMutants are broken forms of signals that claim.
var wokenMutants = []mutant{
	{"wake for another", "woken/wake|claim", "claim untold", text("locked_by = CASE WHEN w.taken THEN $2::text",
		"locked_by = CASE WHEN w.taken AND $2 <> '' THEN 'w2'")},
	{"wake that tells no claim", "woken/wake|claim", "claim untold", text("sum AS MATERIALIZED (SELECT coalesce('{' || min(u.id)::text || '}', '{}') AS ids FROM u)",
		"sum AS MATERIALIZED (SELECT '{}' AS ids, count(u.id) FROM u)")},
	{"wake of what is paused", "woken/wake|pause", "claimed though paused", text("AND NOT g.paused AND g.partition_key IS NULL", "AND g.partition_key IS NULL")},
	{"wake that claims without its inbox", "woken/wake|claim", "inbox paired with another claim", text("set_config('gendurable.awaiting', sum.ids,", "set_config('gendurable.awaiting', '{}',")},
	{"wake by any signal", "woken/wake, for nothing|claim", "woken by nothing", text("AS woken, coalesce(", "OR g.awaits IS NOT NULL AS woken, g.awaits IS NOT NULL OR coalesce(")},
	{"wake by what is known", "woken/wake again|claim", "woken by nothing", of("sent AS", text("CASE WHEN sent.id IS NULL THEN '' ELSE seen.id::text END", "coalesce(seen.id::text, '')"))},
}
