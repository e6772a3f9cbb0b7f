package model_test

var growMutants = []mutant{
	{"a root does not wait for what is added", "commit_grow.go", "SET children_pending = p.children_pending + $3::int", "SET children_pending = p.children_pending + 0 * $3::int"},
	{"a policy does not count what is added", "commit_grow.go", "THEN p.join_size + $3::int ELSE", "THEN p.join_size ELSE"},
	{"nobody waits for what is added", "commit_grow.go", "SET children_pending = p.children_pending + u.n\n", "SET children_pending = p.children_pending + 0 * u.n\n"},
	{"what has ended is waited for", "commit_grow.go", "if len(e.ended.from) > 0 {", "if len(e.ended.from) > 1000 {"},
	{"a graph that is over grows", "commit_grow.go", "\tif g.over {", "\tif g.over && false {"},
	{"a decision ends though its graph is over", "commit_grow.go", "return nil, s.overtaken(send, b, out)", "return nil, send(s.outcomes(b, out)...)"},
	{"nobody goes on behind a decision that is cancelled", "commit_grow.go", "ids, keys, mark, false, &p, stmts...)", "nil, keys, mark, false, &p, stmts...)"},
	{"additions before what has begun", "commit_grow.go", "case !known.waits && !known.lost && !g.led", "case !known.waits && !known.lost && false && !g.led"},
	{"additions in a circle", "commit_grow.go", "\t\tif e.back {", "\t\tif e.back && false {"},
	{"an added node is in the queue of the node that adds it", "commit_grow.go", "g.Specs[i].Queue = g.queue\n", "g.Specs[i].Queue = g.claim.Queue\n"},
	{"a name is added twice", "commit_grow.go", "\treturn !taken\n", "\treturn !taken || taken\n"},
}
