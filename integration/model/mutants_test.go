package model_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is a way to break the engine: one replacement in a file of package store.
type mutant struct{ name, file, from, to string }

// mutants are ways to break the engine that are known to be wrong, each as one replacement in the
// source of package store. The random histories must notice every one, or else a history that was
// written for it. A suite that misses one is itself broken.
var mutants = []mutant{
	{"no re-check at park", "commit_riders.go", "AND (SELECT true FROM {s}.signals s", "AND false AND (SELECT true FROM {s}.signals s"},
	{"re-check counts what was given", "commit_riders.go", "AND s.id NOT IN (SELECT unnest($3::bigint[]))",
		"AND (s.id NOT IN (SELECT unnest($3::bigint[])) OR true)"},
	{"re-check never counts what was given", "commit_batch.go", "if o.Step == c.Step {", "if o.Step != \"\" {"},
	{"re-check counts tombstones", "commit_riders.go", "s.name = ANY(g.awaits) AND s.consumed_at IS NULL", "s.name = ANY(g.awaits)"},
	{"join without round", "commit_riders.go", "AND p.round = l.parent_round", ""},
	{"parents locked too late", "commit.go", "t.parent = ANY(ARRAY(SELECT id FROM p)) OR t.parent IS NULL",
		"t.parent IS NULL OR t.parent = ANY(ARRAY(SELECT id FROM p))"},
	{"join more than once", "commit.go", "AND g.parent_id IS NOT NULL AND g.joined IS NULL THEN", "AND g.parent_id IS NOT NULL THEN"},
	{"quorum out of reach sleeps", "commit_join.go", "OR x.join_done + d.ok + x.children_pending - d.n < x.wake_done", ""},
	{"policy does not count failures", "commit_riders.go", "THEN p.join_failed + l.bad ELSE", "THEN p.join_failed ELSE"},
	{"quorum counts dropped children", "commit_spawn.go", "g.children_pending - u.n < g.wake_done", "false"},
	{"join one child at a time", "commit_riders.go", "count(*)::int AS n", "1 AS n"},
	{"consume by name", "commit_riders.go", "DELETE FROM {s}.signals s\nWHERE s.id = ANY($1::bigint[])",
		"DELETE FROM {s}.signals s\nWHERE s.dedup_key IS NULL AND (s.target_id, s.name) IN (SELECT x.target_id, x.name FROM {s}.signals x WHERE x.id = ANY($1::bigint[]))"},
	{"consume though stale", "commit_riders.go", "WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`)\n\n// tombstoneSQL",
		"WHERE s.id = ANY($1::bigint[]) AND $2::uuid IS NOT NULL`)\n\n// tombstoneSQL"},
	{"retry consumes", "commit_batch.go", "case step.Retry, step.Again, step.Done, step.Fail:", "case step.Retry:\n\t\tb.consume(c)\n\tcase step.Again, step.Done, step.Fail:"},
	{"retry forgets what it awaited", "commit.go", "awaits = CASE WHEN u.kind IN ('retry', 'again', 'fail')", "awaits = CASE WHEN u.kind IN ('again', 'fail')"},
	{"retry forgets that it timed out", "commit.go", "timed_out = CASE WHEN u.kind IN ('retry', 'again', 'fail')", "timed_out = CASE WHEN u.kind IN ('again', 'fail')"},
	{"again counts", "commit.go", "WHEN u.kind IN ('again', 'done', 'fail') THEN g.attempt ELSE 0",
		"WHEN u.kind = 'again' THEN g.attempt + 1 WHEN u.kind IN ('done', 'fail') THEN g.attempt ELSE 0"},
	{"again forgets crashes", "commit.go", "crashes = CASE WHEN u.kind IN ('retry', 'again', 'done', 'fail')",
		"crashes = CASE WHEN u.kind IN ('retry', 'done', 'fail')"},
	{"again forgets what it awaited", "commit.go", "awaits = CASE WHEN u.kind IN ('retry', 'again', 'fail')",
		"awaits = CASE WHEN u.kind IN ('retry', 'fail')"},
	{"ends beside a signal", "commit.go", "if u := &b.unless; len(u.ids) > 0 {", "if u := &b.unless; len(u.ids) > 1000 {"},
	{"a given signal keeps it alive", "commit_riders.go", "s.id NOT IN (SELECT unnest($8::bigint[])) LIMIT 1)", "$8::bigint[] IS NOT NULL LIMIT 1)"},
	{"going on consumes nothing", "commit_riders.go", "s.dedup_key IS NULL AND s.target_id IN (SELECT id FROM turned)", "s.dedup_key IS NULL AND false"},
	{"going on keeps the failure's error", "commit_riders.go", "nullif(g.errors - (-1), '[]')", "g.errors"},
	{"going on loses its inbox", "commit_riders.go", " AND g.status = 'done') = $2::uuid", ") = $2::uuid"},
	{"attempt not reset", "commit.go", "'fail') THEN g.attempt ELSE 0 END", "'fail') THEN g.attempt ELSE g.attempt END"},
	{"attempt not reset by Await", "commit.go", "'fail') THEN g.attempt ELSE 0 END", "'fail', 'await') THEN g.attempt ELSE 0 END"},
	{"crashes not reset by a kept claim", "commit.go", "attempt = 0, crashes = 0,\n", "attempt = 0,\n"},
	{"visit of a retry moves", "commit.go", "CASE WHEN u.kind IN ('next', 'await', 'children', 'rejoin') THEN 1",
		"CASE WHEN u.kind IN ('next', 'retry', 'await', 'children') THEN 1"},
	{"fence without token", "commit_fence.go", `" AND g.claim_token = " + token`, `" AND (true OR g.claim_token = " + token + ")"`},
	{"fence without visit", "commit_fence.go", `" AND g.visit = " + visit`, `" AND (true OR g.visit = " + visit + ")"`},
	{"fence without worker and token", "commit_fence.go", `" AND g.locked_by = " + worker + " AND g.claim_token = " + token`,
		`" AND (true OR g.locked_by = " + worker + " AND g.claim_token = " + token + ")"`},
	{"head without priority", "key_head.go", "ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f", "ORDER BY g.eligible_at, g.id LIMIT 1) f"},
	{"pick without priority", "claim.go", "PARTITION BY act ORDER BY priority, eligible_at, id)", "PARTITION BY act ORDER BY eligible_at, id)"},
	{"pick without id", "claim.go", "PARTITION BY act ORDER BY priority, eligible_at, id)", "PARTITION BY act ORDER BY priority, eligible_at, id DESC)"},
	{"no promotion after a commit", "commit.go", "if len(b.keys) > 0 {", "if len(b.keys) > 1000 {"},
	{"no promotion after a release", "lease.go", "case len(keys) > 0 && promote:", "case len(keys) > 1000 && promote:"},
	{"busy per queue", "claim.go", "WHERE g.partition_key = k AND g.status = 'executing' LIMIT 1) b", "WHERE g.partition_key = k AND g.queue = $1 AND g.status = 'executing' LIMIT 1) b"},
	{"an unknown head holds nobody", "claim.go", "p.busy IS NULL AND p.head = w.id", "p.busy IS NULL AND (p.head = w.id OR p.first = w.id)"},
	{"what was set aside comes late", "claim.go", "+ p.lock + `) q LIMIT $2) r", "+ p.lock + `) q LIMIT $5) r"},
	{"ids in key order", "insert_forms.go", "AS id, t.* FROM (` + f.rows(p) + `) t) r `", "AS id, t.* FROM (SELECT * FROM (` + f.rows(p) + `) t ORDER BY t.key) t) r `"},
	{"instances without a version", "insert_forms.go", "coalesce(r.ver, ($3::int[])[1])", "1"},
	{"inserted as claimed for another", "insert_forms.go", "$18::text, `", "left($18::text, 5), `"},
	{"inserted as claimed without a token", "insert_forms.go", "interval '1 microsecond', {next token}`", "interval '1 microsecond', 1`"},
	{"woken and claimed for another", "signal_claimed.go", "w.taken THEN $2::text", "w.taken THEN left($2::text, 5)"},
	{"woken and claimed without a token", "signal_claimed.go", "w.taken THEN {next token}", "w.taken THEN 1"},
	{"woken and claimed before its deadline", "signal_claimed.go", "await_deadline = CASE WHEN w.woken THEN NULL ELSE g.await_deadline END,", ""},
	{"claimed by any signal", "signal_claimed.go", "false) AND NOT g.paused AND", "false) OR g.awaits IS NOT NULL AND NOT g.paused AND"},
	{"a scope forgets done", "insert_forms.go", "WHEN 1 THEN '{runnable,executing,awaiting_signal,awaiting_children,done}'", "WHEN 1 THEN '{runnable,executing,awaiting_signal,awaiting_children}'"},
	{"children wait behind another parent's", "insert_specs.go", "at.parent = c.places[i]", "at.parent = 0"},
	{"barrier counts dropped children", "commit_spawn.go", "children_pending = g.children_pending - u.n,", "children_pending = g.children_pending,"},
	{"a duplicate wakes", "signal_deliver.go", "CASE WHEN sent.id IS NULL THEN '' ELSE seen.id::text END", "coalesce(seen.id::text, '')"},
	{"a consumed signal is no duplicate", "signal_deliver.go", "AND d.dedup_key = $3::text)", "AND d.dedup_key = $3::text AND d.consumed_at IS NULL)"},
	{"tombstones fill the inbox", "signal_deliver.go", "WHERE i.target_id = t.id AND i.consumed_at IS NULL LIMIT", "WHERE i.target_id = t.id LIMIT"},
	{"full outranks duplicate", "signal_deliver.go", "case d.duplicate || !d.full:", "case !d.full:"},
	{"delivery to the dead", "signal_deliver.go", "WHERE g.id = $1::bigint AND g.status NOT IN ('done', 'failed') FOR", "WHERE g.id = $1::bigint FOR"},
	{"delivery to a dead key", "signal_deliver.go", "WHERE g.correlation_guard = $1::text AND g.status NOT IN ('done', 'failed') FOR", "WHERE g.correlation_guard = $1::text FOR"},
	{"a wake keeps the deadline", "signal_deliver.go", "await_deadline = CASE WHEN `+awaiting(\"$1\")+` THEN NULL ELSE g.await_deadline END,", ""},
	{"a duplicate in one call of many", "signal_many.go", "row_number() OVER (PARTITION BY m.id, m.dedup ORDER BY m.n) = 1 AS first", "true AS first"},
	{"one call of many fills no inbox", "signal_many.go", "WHERE m.first AND NOT m.known) OVER (PARTITION BY m.id ORDER BY m.n) + h.held <=", "WHERE false) OVER (PARTITION BY m.id ORDER BY m.n) + h.held <"},
	{"many to the dead", "signal_many.go", "AND g.status NOT IN ('done', 'failed') ORDER BY g.id FOR", "ORDER BY g.id FOR"},
	{"one of many wakes by any name", "signal_many.go", " AND g.awaits && m.names", ""},
	{"a timeout forgets what was awaited", "sweep_timeout.go", "await_deadline = NULL, timed_out = true", "await_deadline = NULL, timed_out = true, awaits = NULL"},
	{"timed_out outlives progress", "commit.go", "THEN g.timed_out ELSE false END", "THEN g.timed_out ELSE g.timed_out END"},
	{"done leaves its inbox", "commit.go", "if len(b.done) > 0 {", "if len(b.done) > 1000 {"},
	{"stop ends the inbox's rows", "commit_batch.go", "case step.Retry, step.Again, step.Done, step.Fail:", "case step.Fail:\n\t\tb.done = append(b.done, c.ID)\n\tcase step.Retry, step.Again, step.Done:"},
	{"reap without backoff", "sweep_reap.go", "WHEN e.over OR g.crashes = 0 THEN g.eligible_at", "WHEN e.over OR g.crashes >= 0 THEN g.eligible_at"},
	{"reap delays the first", "sweep_reap.go", "WHEN e.over OR g.crashes = 0 THEN g.eligible_at", "WHEN e.over THEN g.eligible_at"},
	{"reap one crash too many", "sweep_reap.go", "x.crashes >= m.most", "x.crashes > m.most"},
	{"reap without join", "sweep_reap.go", "joiners.add(id, streamed)\n", "_ = streamed\n"},
	{"a deadline ends claims", "sweep_expire.go", " AND coalesce(x.status <> 'executing', false)", ""},
	{"a deadline is a moment late", "sweep_expire.go", "x.deadline <= (SELECT now FROM c)", "x.deadline < (SELECT now FROM c)"},
	{"a deadline without join", "sweep_expire.go", "joiners.add(id, streamed)\n", "_ = streamed\n"},
	{"a Rejoin counts its batch twice", "commit_join.go", "k.joined <> $2::uuid AND k.status = 'done')", "k.joined IS NOT NULL AND k.status = 'done')"},
	{"a Rejoin takes what it has not seen as seen", "commit_join.go", "coalesce(u.seen_done, g.join_done, 0)", "u.ok"},
	{"a retried child is forgotten", "commit_join.go", "greatest(u.bad - coalesce", "greatest(u.bad - 1 - coalesce"},
	{"a rest is not forgotten", "sweep_rest.go", "WHERE abs(l.round) <> ALL(d.rounds)", "WHERE d.rounds IS NOT NULL"},
	{"a deadline without promotion", "sweep_reap.go", "case len(keys) > 0 && promote:", "case len(keys) > 1000 && promote:"},
	{"a deadline locks parents too late", "sweep_expire.go", " AND (SELECT count(*) FROM overdue) > 0", ""},
	{"retry keeps the deadline", "operate_retry.go", "deadline = CASE WHEN g.deadline > (SELECT clock_timestamp()) THEN g.deadline END", "deadline = g.deadline"},
	{"errors grow", "read_attempts.go", "$[last - 18 to last]", "$[0 to last]"},
	{"the oldest errors stay", "read_attempts.go", "$[last - 18 to last]", "$[0 to 18]"},
	{"release as a retry", "lease.go", "SET status = 'runnable', pick_lane = {lane front},", "SET status = 'runnable', attempt = g.attempt + 1, pick_lane = {lane front},"},
	{"GC takes the current round", "sweep_prune.go", "WHERE p.id = g.parent_id AND p.round", "WHERE false AND p.id = g.parent_id AND p.round"},
	{"GC with one retention", "insert_retain.go", "THEN $3::bigint ELSE $2::bigint END", "THEN $3::bigint ELSE least($1::bigint, $2::bigint) END"},
	{"GC of the newest tombstones", "sweep_prune.go", "ORDER BY x.consumed_at DESC, x.id DESC OFFSET", "ORDER BY x.consumed_at, x.id OFFSET"},
	{"what is blocked stays in front", "claim.go", "WHEN a.id IS NULL AND coalesce(p.busy, p.head) IS NOT NULL THEN {act blocked} END AS act", "END AS act"},
	{"a signal with start starts only", "signal_arrive.go", "a.insert(s), a.flip(s)}", "a.flip(s)}"},
	{"held in any queue", "lease.go", "AND g.queue = $2`", "AND $2 <> ''`"},
	{"due a moment late", "schedules.go", "s.next_at <= coalesce($2::timestamptz", "s.next_at < coalesce($2::timestamptz"},
	{"resolve by any mark", "commit_resolve.go", `case mark != "" && slices.Contains(marked[id], mark):`, `case mark != "":`},
	{"own transaction without a look", "tx_step.go", "if !current {", "if current && !current {"},
	{"reap notes no lost claim", "sweep_reap.go", "lost.add(*key, worker, token)", "_ = token"},
	{"cancel notes no lost claim", "operate_cancel.go", "lost.add(r.key, r.worker, r.token)", "_ = r.token"},
	{"a claim is told of its own lost claims", "claim_read.go", "AND l.worker <> $1)", "AND $1 <> '')"},
	{"a note outlives its step", "key_lost.go", "x.claim_token = ANY($2::bigint[])", "x.claim_token <> ALL($2::bigint[])"},
	{"who lives is taken for gone", "key_lost.go", "AS gone FROM (SELECT DISTINCT worker FROM l) d)", "OR true AS gone FROM (SELECT DISTINCT worker FROM l) d)"},
	{"nobody gets in line", "claim.go", "CASE WHEN w.gate IS NULL THEN {act claim} ELSE {act line} END", "{act claim}"},
	{"a line counts no places", "gate_line.go", "least(m.places - cardinality(h.taken)", "least(m.places"},
	{"a total counts nothing", "gate_line.go", "ELSE r.total - (SELECT count(*)", "ELSE r.total - (SELECT 0 * count(*)"},
	{"a key owes nothing", "gate_line.go", "max(p.debt) + sum(p.cost)", "max(p.debt) + 0 * sum(p.cost)"},
	{"all keys owe nothing", "gate_line.go", "max(p.owes) + sum(p.cost)", "max(p.owes) + 0 * sum(p.cost)"},
	{"no debt is paid off", "gate_line.go", "* 1000000 * ` + n + `::float8", "* 0 * ` + n + `::float8"},
	{"seats that nobody counts", "gate_seat.go", "AND g.seat IS NOT NULL) AS taken", "AND g.seat < 0) AS taken"},
	{"seats that nobody pays", "gate_seat.go", " + c.count)", " + 0 * c.count)"},
	{"a run begins beside its gate", "gate.go", "(r.run AND g.run_gate IS NULL OR NOT r.run AND NOT", "(NOT r.run AND NOT"},
	{"a run that has ended keeps its place", "gate_line.go", "g.run_gate = x.k AND g.run_place IS NOT NULL AND g.finished_at IS NULL", "g.run_gate = x.k AND g.run_place IS NOT NULL"},
	{"history of the visit that began", "history.go", "AS at, u.visit, u.took", "AS at, g.visit, u.took"},
	{"history of the next attempt", "history.go", "AS waited, l.attempt, g.fsm_version", "AS waited, g.attempt, g.fsm_version"},
	{"history of every recorded machine's sweep, whatever the machine", "history.go", "ON r.machine = h.fsm", "ON r.machine <> ''"},
	{"history of a crash as of the next attempt", "sweep_reap.go", "\"g.attempt - 1\"", "\"g.attempt\""},
	{"history of an end that was turned, as it was wanted", "history.go", "CASE WHEN g.visit > u.visit THEN 'next' ELSE u.kind END", "u.kind"},
	{"history of ends in doubt, though stale", "history.go", "WHERE g.commit_id = $2::uuid`", "WHERE $2::uuid IS NOT NULL`"},
	{"history of signals that were given", "commit_riders.go", "AND d.id <> ALL(coalesce($3::bigint[], '{}')) GROUP", "AND $3::bigint[] IS NOT NULL GROUP"},
	{"verbs that nobody recorded", "audit.go", "WHERE x.id = u.id OFFSET 0) g`", "WHERE x.id = u.id AND x.status = 'done' OFFSET 0) g`"},
	{"lease of the claim only", "lease.go", "SET lease_expires_at = (SELECT clock_timestamp()) + $4::bigint * interval '1 microsecond'", "SET lease_expires_at = g.lease_expires_at + 0 * $4::bigint * interval '1 microsecond'"},
}

// A mutant whose text no longer exists breaks nothing. This test notices it at once, and not only
// the next long run.
func TestMutantsHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(mutants, changeMutants, keepMutants, gateMutants, graphMutants, streamMutants, restartMutants, growMutants) {
		source, err := os.ReadFile(filepath.Join("../../internal/store", m.file))
		require.NoError(t, err, m.name)
		require.Contains(t, string(source), m.from, m.name)
	}
}
