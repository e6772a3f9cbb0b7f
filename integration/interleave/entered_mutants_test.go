package interleave

// enteredMutants are broken forms of inserts as claimed.
var enteredMutants = []mutant{
	{"enter for another", "entered/enter many|claim", "claim untold", text("'executing'::{s}.durable_status, $18::text",
		"'executing'::{s}.durable_status, CASE WHEN $18::text <> '' THEN 'w2' END")},
	{"enter with another token", "entered/enter many|cancel", "claim untold", text("g.visit, g.claim_token, g.priority", "g.visit, g.claim_token + 100, g.priority")},
	{"enter as runnable", "entered/enter many|claim by another", "claim that is none", text("'executing'::{s}.durable_status, $18::text, (SELECT now FROM c) + $19::bigint * interval '1 microsecond'",
		"CASE WHEN $18::text || $19::bigint <> '' THEN 'runnable'::{s}.durable_status END, NULL::text, NULL::timestamptz")},
}
