package interleave

// streamMutants break what streams of children rely on.
var streamMutants = []mutant{
	{"end that draws no number", "streaming/done|reap to the limit", "end without a number", text("x.parent_round < 0 OFFSET", "false OFFSET")},
	{"number of an end that is not counted", "streaming/stop, slow|one done, then another", "stream out of order",
		text("stream_nth = nextval('{s}.gen_durable_id_seq')", "stream_nth = -k.id")},
	{"portion of what has not ended", "streaming/portion|done", "shown before its end", text("WHERE k.joined IS NOT NULL AND k.stream_visit IS NULL", "WHERE k.stream_visit IS NULL")},
	{"portion that grows", "streaming/done, portion twice|done", "portion grew",
		text("AND NOT EXISTS (SELECT FROM k WHERE k.stream_visit = $3::bigint)", "")},
	{"rejoin that sleeps beside what was not shown", "streaming/portion, rejoin|done", "overslept a stream", text("ELSE u.unshown END", "ELSE 0 END")},
}
