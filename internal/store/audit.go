package store

import "github.com/gendurable/gendurable/entpgx"

// Every verb of an operator records itself in the table history, in its own transaction, in the
// same round trip, and only what it has changed: a verb that is refused, or finds everything as it
// wants it, leaves nothing there. Such rows have an actor; the transitions of instances have none.

// By says who asks for a verb, and why.
type By struct {
	Actor  string
	Reason string // "": none was given
}

// factsOf describes a row for the audit: what verbs change. Verbs that edit states add the state:
// see factsWith.
func factsOf(row string) string {
	return `(jsonb_strip_nulls(jsonb_build_object('status', ` + row + `.status, 'step', ` + row + `.step, 'visit', ` + row + `.visit, 'attempt', ` + row + `.attempt,
  'crashes', ` + row + `.crashes, 'eligible_at', ` + row + `.eligible_at, 'paused', ` + row + `.paused, 'deadline', ` + row + `.deadline, 'failure', ` + row + `.failure))`
}

var factsOnly = factsOf("g") + `)`

// factsWith describes a row with its state, or of one over 8 KiB its size and hash. If the host
// redacts states ($9 is not NULL), shown is what it lets the audit keep, and NULL stands for
// nothing.
func factsWith(row, shown string) string {
	return factsOf(row) + ` || CASE WHEN $9::text[] IS NOT NULL THEN CASE WHEN ` + shown + ` IS NULL THEN '{}'
      ELSE jsonb_build_object('state', ` + shown + `::jsonb) END
    WHEN octet_length(` + row + `.state::text) <= 8192 THEN jsonb_build_object('state', ` + row + `.state)
    ELSE jsonb_build_object('state_bytes', octet_length(` + row + `.state::text), 'state_md5', md5(` + row + `.state::text)) END)`
}

// auditSQL records a verb on instances that this transaction has locked and changed. It reads them
// as they are now; before is as they were locked.
//
// $1 verb $2 actor $3 reason $4 ids $5 before
var auditSQL = named("audit", `INSERT INTO {s}.history (at, instance, visit, attempt, fsm_version, kind, fsm, step, actor, reason, before, after)
SELECT clock_timestamp(), g.id, g.visit, g.attempt, g.fsm_version, 'admin.' || $1::text, g.fsm, g.step, $2::text, $3::text, u.before::jsonb,
  `+factsOnly+`
FROM (SELECT unnest($4::bigint[]) AS id, unnest($5::text[]) AS before) u
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g`)

func (s *Store) audited(todo []*operated, o *Order) entpgx.Stmt {
	ids, before := make([]int64, len(todo)), make([]string, len(todo))
	for i, r := range todo {
		ids[i], before[i] = r.id, r.facts
	}
	return s.stmt(auditSQL, nil, string(o.Verb), o.Actor, optional(o.Reason), ids, before)
}

// seenGateSQL locks a gate and keeps it as it is, for auditGateSQL, in a setting that ends with the
// transaction. $1 name
var seenGateSQL = named("seen gate", `SELECT set_config('gendurable.before', coalesce(
  (SELECT jsonb_strip_nulls(to_jsonb(r) - 'updated_at')::text FROM {s}.gates r WHERE r.name = $1 FOR NO KEY UPDATE), ''), true)`)

// auditGateSQL records that this transaction has stored or deleted a gate. A gate that it has left
// alone has another transaction's xmin. Where two operators store a new gate at once, the later one
// finds nothing to lock: its row says what it left, and not what it found.
//
// $1 name $2 verb $3 actor $4 reason
var auditGateSQL = named("audit gate", `INSERT INTO {s}.history (at, kind, subject, actor, reason, before, after)
SELECT clock_timestamp(), 'admin.' || $2::text, 'gate ' || $1::text, $3::text, $4::text, b.seen, a.is
FROM (SELECT nullif(current_setting('gendurable.before'), '')::jsonb AS seen) b
LEFT JOIN (SELECT jsonb_strip_nulls(to_jsonb(r) - 'updated_at') AS is, r.xmin = pg_current_xact_id()::xid AS own FROM {s}.gates r WHERE r.name = $1) a
  ON true
WHERE coalesce(a.own, b.seen IS NOT NULL)`)

// auditRunSQL records that a schedule was run by hand. $1 name $2 actor $3 reason $4 its instance
var auditRunSQL = named("audit run", `INSERT INTO {s}.history (at, instance, kind, subject, actor, reason)
VALUES (clock_timestamp(), $4::bigint, 'admin.run_schedule', 'schedule ' || $1::text, $2::text, $3::text)`)

// recordedText is the head of an INSERT that records the rows of p, which a statement has changed.
// The arguments of such a statement end with the actor and the reason, $2 and $3.
const recordedText = `INSERT INTO {s}.history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), `
