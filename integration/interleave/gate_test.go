package interleave

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

// unit is what a schedule moves at a time: one statement that matters, and the quiet ones before
// it.
type unit struct {
	bytes   []byte
	label   string
	answers int  // number of completions to wait for
	sync    bool // it ends with Sync: the answer is ReadyForQuery
}

// These are kinds of protocol messages, by their first byte.
const (
	fromParse, fromBind, fromExecute, fromSync, fromQuery     = 'P', 'B', 'E', 'S', 'Q'
	toComplete, toEmpty, toSuspended, toError, toReady, toKey = 'C', 'I', 's', 'E', 'Z', 'K'
)

// gate is a network connection to Postgres on which statements wait until the schedule lets them
// pass. While its session is open they pass unchanged. The session's lock guards all fields.
type gate struct {
	net.Conn
	s *session

	started bool // the server is ready for queries: from now on the client's messages have a type
	pid     uint32
	texts   map[string]string // the texts of prepared statements, by name

	in       []byte // the client's bytes that do not form a whole message yet
	building unit
	queue    []unit
	skipping bool // after an error the server ignores everything up to Sync
	reading  bool // the transaction has only read so far

	out scanner
}

func newGate(conn net.Conn, s *session) *gate {
	return &gate{Conn: conn, s: s, texts: map[string]string{}}
}

// Write takes the bytes that pgx sends. It never blocks while statements are held back.
func (g *gate) Write(p []byte) (int, error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if !g.started {
		return g.Conn.Write(p)
	}
	g.in = append(g.in, p...)
	for len(g.in) >= 5 {
		size := 1 + int(binary.BigEndian.Uint32(g.in[1:5]))
		if len(g.in) < size {
			break
		}
		if err := g.take(slices.Clone(g.in[:size])); err != nil {
			return 0, err
		}
		g.in = g.in[size:]
	}
	g.s.poke()
	return len(p), nil
}

// take adds one message of the client to the unit that is being built, or passes it on.
func (g *gate) take(m []byte) error {
	switch m[0] {
	case fromParse:
		fields := bytes.SplitN(m[5:], []byte{0}, 3)
		g.texts[string(fields[0])] = string(fields[1])
	case fromBind:
		fields := bytes.SplitN(m[5:], []byte{0}, 3)
		g.building.label = g.name(label(g.texts[string(fields[1])]))
	}
	// The COMMIT of a step's own transaction is a simple query. Any other simple query is no step of
	// a schedule: it is a ping, a BEGIN, or the ROLLBACK of a transaction that an error has already
	// ended or that was stale.
	if g.s.gated && !g.skipping && m[0] == fromQuery && string(m[5:]) == "commit\x00" {
		g.queue = append(g.queue, unit{bytes: m, label: "commit", answers: 1, sync: true})
		return nil
	}
	if !g.s.gated || g.skipping || m[0] == fromQuery {
		if m[0] == fromSync {
			g.skipping = false
		}
		_, err := g.Conn.Write(m)
		return err
	}
	g.building.bytes = append(g.building.bytes, m...)
	switch m[0] {
	case fromExecute:
		g.building.answers++
		if !quiet[g.building.label] {
			g.queue, g.building = append(g.queue, g.building), unit{}
		}
	case fromSync:
		done := g.building
		g.building = unit{}
		switch {
		case done.answers > 0 && quiet[done.label] && len(g.queue) > 0:
			last := &g.queue[len(g.queue)-1]
			last.bytes, last.answers, last.sync = append(last.bytes, done.bytes...), last.answers+done.answers, true
		case done.answers > 0:
			done.sync = true
			g.queue = append(g.queue, done)
		case len(g.queue) > 0:
			last := &g.queue[len(g.queue)-1]
			last.bytes, last.sync = append(last.bytes, done.bytes...), true
		default: // these messages prepare statements
			_, err := g.Conn.Write(done.bytes)
			return err
		}
	}
	return nil
}

// name returns the label of a unit. A COMMIT of a transaction that has only read has a separate
// one.
func (g *gate) name(label string) string {
	switch {
	case label == "begin":
		g.reading = true
	case label == "commit" && g.reading:
		return commitOfReads
	case !onlyReads[label]:
		g.reading = false
	}
	return label
}

// release lets the next unit pass.
func (g *gate) release() error {
	u := g.queue[0]
	g.queue = g.queue[1:]
	g.s.flying = &flight{gate: g, answers: u.answers, sync: u.sync}
	if !u.sync {
		// Ask the server for the answers now. This message itself has no answer.
		u.bytes = append(u.bytes, 'H', 0, 0, 0, 4)
	}
	_, err := g.Conn.Write(u.bytes)
	return err
}

// flight is a unit that was sent.
type flight struct {
	gate    *gate
	answers int
	sync    bool
}

// Read hands the server's bytes to pgx, and notes what they complete.
func (g *gate) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if failed := g.out.scan(p[:n], g.answer); failed != nil {
		return n, failed
	}
	var timeout net.Error
	if err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
		g.landed() // the connection is gone: nothing more will come
	}
	return n, err
}

// answer handles one message of the server: its kind and the first bytes of its body.
func (g *gate) answer(kind byte, head []byte) error {
	f := g.s.flying
	flying := f != nil && f.gate == g
	switch kind {
	case toKey:
		g.pid = binary.BigEndian.Uint32(head)
	case toReady:
		g.started = true
		if flying && f.sync {
			g.landed()
		}
	case toComplete, toEmpty, toSuspended:
		if flying && !f.sync {
			if f.answers--; f.answers == 0 {
				g.landed()
			}
		}
	case toError:
		if bytes.Contains(head, []byte("\x00C40P01\x00")) {
			g.s.deadlocks++
		}
		if flying && !f.sync {
			return g.abandon(f)
		}
	}
	return nil
}

// abandon sends the rest of a pipeline after an error. The server ignores it, up to the Sync for
// which it waits.
func (g *gate) abandon(f *flight) error {
	f.sync, g.skipping = true, true
	for len(g.queue) > 0 && g.skipping {
		u := g.queue[0]
		g.queue = g.queue[1:]
		g.skipping = !u.sync
		if _, err := g.Conn.Write(u.bytes); err != nil {
			return err
		}
	}
	return nil
}

func (g *gate) landed() {
	if g.s.flying != nil && g.s.flying.gate == g {
		g.s.flying = nil
	}
	g.s.poke()
}

// keep is the number of bytes of a message that the scanner keeps: enough for a pid, and for the
// code of an error.
const keep = 128

// scanner finds the messages in the server's stream.
type scanner struct {
	head []byte // of the message that is being read: kind, length and the kept part of the body
	left int    // bytes of the body that are still to come
}

func (s *scanner) scan(p []byte, message func(kind byte, head []byte) error) error {
	for len(p) > 0 {
		if len(s.head) < 5 {
			take := min(5-len(s.head), len(p))
			s.head, p = append(s.head, p[:take]...), p[take:]
			if len(s.head) < 5 {
				return nil
			}
			s.left = int(binary.BigEndian.Uint32(s.head[1:5])) - 4
		}
		take := min(s.left, len(p))
		s.head = append(s.head, p[:min(take, max(0, keep-len(s.head)))]...)
		s.left, p = s.left-take, p[take:]
		if s.left > 0 {
			continue
		}
		if err := message(s.head[0], s.head[5:]); err != nil {
			return fmt.Errorf("at a message of kind %q: %w", s.head[0], err)
		}
		s.head = s.head[:0]
	}
	return nil
}

// quiet are statements after which no other session can make a difference before the next one, so
// they pass together with that. BEGIN and the settings take no lock, and at READ COMMITTED no
// snapshot. The rows that the reads find are hints that are verified later. Statements that consume
// signals name them by id, and no other claim's statement names them. The note of a lost claim is
// not seen before its COMMIT. A claim reads its own rows, which only the end of the claim changes,
// and that may as well come after it has read the inbox. The audit of a verb reads rows that the
// verb has locked, as the history of an end does that a signal may turn. A claim counts seats, and
// pays, under the lock of a gate. An inserter has locked the windows that it settles. What a
// restart reads counts once it has locked all that it has found, and looked again: its looks, of
// several statements, pass as one; what it writes then is locked. An addition has locked the root
// of its graph, and the nodes that are to wait for it: the rows that it finds stay so, and its
// changes are not seen. A COMMIT after reads ends nothing.
var quiet = map[string]bool{"begin": true, "audit": true, "history unless": true, "settings": true, "prune due": true, "occupied keys": true, "prune overgrown": true, "lost": true,
	"consume": true, "note lost": true, "claim read": true, "seats": true, "pay": true, "seen gate": true, "settle windows": true, "close windows": true, "restarted": true,
	"grow root": true, "grow nodes": true, "grow edges": true, "add nodes": true, "add edges": true, "reach": true, "await more": true, "grow": true, "settle added": true, "grow fence": true,
	"failed children": true, "skipped behind": true, "wait behind": true, "round sizes": true, "restart": true, commitOfReads: true}

const commitOfReads = "commit of reads"

// onlyReads are statements that lock nothing and write nothing.
var onlyReads = map[string]bool{"portion read": true, "settings": true, "claim read": true, "claim inbox": true, "get": true, "children": true, "unmoved": true, "strays": true}

// labels name statements by words that only they contain. The first match counts.
var labels = [][2]string{
	{".edges e WHERE e.from_id = $2::bigint", "end is free"}, {"SELECT EXISTS (SELECT FROM \"gendurable\".kept_signals k", "kept for"},
	{"SELECT x.stream_most", "portion lock"}, {"SET stream_visit", "portion"}, {"FILTER (WHERE x.stream_visit", "portion read"}, {"SET round = -g.round", "stream"},
	{".windows AS w (name", "open windows"}, {"SELECT w.name, w.uid", "windows"}, {".windows w SET instance", "settle windows"},
	{".windows w WHERE w.name = ANY($1", "close windows"}, {".windows w WHERE (SELECT alone", "prune windows"},
	{"SELECT g.correlation_guard, g.id, g.finished_at", "runs"}, {"SELECT coalesce(g.partition_key, '')", "lock runs"}, {"SET fsm = r.fsm", "replace"},
	{"WITH turned AS", "unless"}, {"THEN 'next' ELSE u.kind END", "history unless"}, {"set_config('gendurable.gates'", "lock gates"}, {"r.name = ANY(current_setting('gendurable.gates')::text[]) AS mine\n", "seats"},
	{".gate_keys AS o (key", "pay"}, {"AS around", "claim lined"}, {"SELECT pg_advisory_xact_lock(", "await gate"}, {".gates AS r (name", "set gate"},
	{".gates r WHERE r.name = $1 RETURNING", "drop gate"}, {"'gendurable.before'", "seen gate"}, {"'admin.' || $2::text, 'gate '", "audit"},
	{".gate_keys AS b (key, closed_until", "throttle"}, {".gate_keys AS k (key, closed_until)", "close gate"},
	{"s.paused_at IS NULL AND s.next_at", "fire schedule"}, {"FROM \"gendurable\".schedules s WHERE s.name = $1 FOR", "lock schedule"},
	{"x.id = s.last_instance", "live instance"}, {"SET next_at = coalesce($2", "advance schedule"}, {"SET paused_at = clock", "pause schedule"},
	{"SET paused_at = NULL", "resume schedule"}, {"DELETE FROM \"gendurable\".schedules", "delete schedule"}, {".schedules AS s (name", "store schedules"},
	{"x.round = $2::bigint AND x.join_round", "grow root"}, {"SELECT x.id, x.node, x.fsm", "grow nodes"}, {"AS u(f, t)", "grow edges"}, {"x.id = $25::bigint", "add nodes"},
	{".edges (from_id, to_id, needs)", "add edges"}, {"SELECT f.node, t.node FROM r", "reach"}, {"p.children_pending + u.n", "await more"},
	{"p.children_pending + $3::int", "grow"}, {"AS u(id, to_id)", "settle added"}, {"SELECT EXISTS (SELECT FROM \"gendurable\".gen_durable g WHERE g.id", "grow fence"},
	{"WITH RECURSIVE r(id)", "skipped behind"}, {"SELECT DISTINCT e.to_id", "wait behind"}, {"o.finished_at IS NULL THEN 0", "edges before"},
	{"x.status = 'failed' OFFSET 0) x", "failed children"}, {"AS left, bool_or", "round sizes"}, {"coalesce(x.join_size, 0) FROM", "restarted"},
	{"joined = CASE WHEN u.counted", "restart"}, {"g.children_pending + u.more", "await again"}, {"'admin.edit'", "edit"}, {"'admin.rewind'", "rewind"}, {"'admin.migrate'", "migrate"}, {"g.state::text, g.xmin::text", "unmoved"},
	{"THEN 4 ELSE 0 END, aside_step", "set aside"}, {"WITH RECURSIVE aside(f, v, s)", "strays"}, {"SET pick_lane = 0\nFROM (SELECT unnest($1", "recall"}, {"'admin.' || $1::text, g.fsm", "audit"}, {"'admin.run_schedule'", "audit"},
	{"SELECT g.id, g.status::text, g.queue", "lock instances"}, {"unnest(l.losers)", "rest"}, {"SELECT x.id, coalesce(x.partition_key, ''), x.status", "losers"}, {"losers = nullif(ARRAY(", "forget rest"},
	{"'skipped: ' ||", "skip"}, {"does not wait for it", "lose"}, {"failure = 'cancelled'", "cancel"}, {"WITH RECURSIVE f(id)", "family"},
	{"status = 'runnable', failure = NULL", "retry"}, {"SET paused = true", "pause"}, {"SET paused = false", "resume"},
	{"least(g.eligible_at", "run now"}, {"greatest($2::timestamptz", "reschedule"},
	{"lost_claims (partition_key", "note lost"}, {"SELECT DISTINCT l.partition_key FROM l", "lingering"},
	{"lost_claims x WHERE x.worker = $1", "landed"}, {"WHERE w.gone OR y.worker", "forget"},
	{"BEGIN", "begin"}, {"COMMIT", "commit"}, {"set_config('lock_timeout'", "settings"},
	{" AS act", "claim"}, {"SELECT q.id, q.fsm, q.fsm_version, q.status", "children"}, {"SELECT g.id, g.fsm, g.fsm_version, g.step, g.queue, g.priori", "get"},
	{"current_setting('gendurable.fencing')", "settings"}, {"current_setting('gendurable.claimed')", "claim read"},
	{"current_setting('gendurable.awaiting')", "claim inbox"},
	{"SET step = u.step", "outcomes, kept"}, {"SET status = 'done', result", "outcomes, done"}, {"WHERE t.parent = ANY(", "outcomes"},
	{".signals s\nWHERE s.id = ANY($1::bigint[])", "consume"}, {".signals s SET consumed_at", "consume"},
	{"SELECT unnest($3::bigint[])", "recheck"}, {"WHERE s.target_id = ANY($1::bigint[])", "drop inbox"},
	{"SET join_round = g.round", "policy"}, {"SET join_round = g.visit", "rejoin"},
	{"p.children_pending - d.n", "join"}, {"dropped = u.dropped", "dropped"}, {"CROSS JOIN LATERAL (SELECT x.round", "spawn"},
	{"SELECT 'kept signals', 'none'", "hold key"},
	{"gendurable.held', true), '')::bigint", "let key"}, {"OVERRIDING SYSTEM VALUE", "insert"}, {"SELECT g.correlation_guard, g.id", "occupants"},
	{"ORDER BY x.id FOR NO KEY UPDATE", "lock rows"},
	{"x.id = ANY($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED", "lock free rows"}, {"NOT IN (SELECT id FROM busy)", "settle"}, {"SELECT h.k, h.q", "promote"}, {"SELECT s.k, b.id IS NULL", "sweep"},
	{"AND g.claim_token = $2 AND g.visit = $3", "own fence"}, {"interleave.booked", "write"}, {"g.correlation_guard = $1::text AND g.status IN", "ended holder"},
	{"SELECT l.id, l.queue", "lock target"}, {".kept_signals (key", "keep"}, {"AS duplicate", "insert signal"}, {"FROM clock WHERE", "wake"},
	{"(SELECT clock_timestamp()) + $4", "beat"}, {"LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token", "lost"},
	{"locked_by = NULL, lease_expires_at = NULL\nFROM unnest", "release"}, {" AS over", "reap"}, {"timed_out = true", "time out"},
	{"l.now_at IS NULL THEN 0", "refile"}, {"b.places IS NULL AND b.at <", "prune gate keys"}, {"k(key, weight)", "weigh gate"}, {"SELECT g.finished_at, g.id FROM", "prune due"}, {"AT TIME ZONE 'UTC', g.id FROM", "prune due"}, {"SELECT DISTINCT k.key", "occupied keys"},
	{"FOR UPDATE OF k SKIP", "take kept"}, {"x.expires_at <= (SELECT", "expire kept"}, {"AND x.status = 'done'\n  FOR UPDATE", "drop instances"}, {"HAVING count(*) >", "prune overgrown"},
	{"FOR UPDATE SKIP LOCKED", "prune"}, {"x.consumed_at DESC", "prune tombstones"},
}

// shard matches the number of a shard, with which the texts for a distributed schema name its
// tables.
var shard = regexp.MustCompile(`_1\d{5}\b`)

// label names a statement for the trace.
func label(sql string) string {
	sql = shard.ReplaceAllString(sql, "")
	for _, l := range labels {
		if strings.Contains(sql, l[0]) {
			return l[1]
		}
	}
	text := strings.Join(strings.Fields(sql), " ")
	return text[:min(len(text), 60)]
}
