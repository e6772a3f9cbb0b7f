package interleave

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// looking is the world of inserts that look for kept signals, in processes whose last poll has
// found none. One is kept for x by now, and none for v, which no instance has. The subject waits,
// has r and may be replaced. The signal for w has expired, and no instance had w in time.
func looking() world {
	mother := &step.Claim{ID: siblingID, Token: 12, Visit: 1, Step: "s", Queue: "default"}
	setup := []string{
		row(subjectID, with(keyed, "correlation_key", "'r'", "state", `'{"n": 0}'`, "eligible_at", "now() - interval '10 s'")...),
		row(siblingID, with(executing, "claim_token", "12", "visit", "1")...),
		keptFor(31, "x", "go", "a", "1 h"), keptFor(34, "w", "go", "", "-1 s"),
	}
	const v, w, r, x = loner, pulses, subject, rule // what the keys stand for
	looks := func(keys things, v verb) verb {
		v = at(keys, looksFor(v))
		v.family = "look for kept"
		return v
	}
	return world{name: "looking", setup: setup, looks: true, only: func(v verb) bool { return v.family == "look for kept" }, verbs: []verb{
		looks(v, inserts("insert", spec("v", ""))), looks(v|w, inserts("insert many", spec("w", ""), spec("v", ""))),
		looks(v, enters("enter", false, spec("v", ""))), looks(v, commits("spawn", true, spawns(mother, spec("v", "")))),
		looks(v, ruled("replace", contending(1, "v", step.ConflictReplace))),
		looks(r, ruled("replace the subject", contending(3, "r", step.ConflictReplace))), looks(r, ruled("newer than the subject", contending(4, "r", step.ConflictNewest))),
		looks(w, inserts("insert, expired", spec("w", ""))), looks(x, inserts("insert, kept", spec("x", ""))),
		at(v, keeps("keep", "v", "go", "b")), at(v, keeps("keep another", "v", "stop", "")), at(w, keeps("keep what has expired", "w", "go", "")),
		at(r, keeps("keep at the subject", "r", "go", "")), looks(v, arrives("start", "v", "go", "a")),
		at(v|w|x, handsOver(verb{name: "hand over", family: "keep", quick: true, run: func(ctx context.Context, s *session) {
			s.insist("hand over", s.handOver(ctx), s.handOver)
		}})),
		at(v|w|x, prunes()), at(r, cancels("cancel", subjectID)), at(r, claims("claim", "default", owner, 10)), at(r, holds("hold", r, subjectID)),
	}}
}

// contending returns a spec that contends for a key.
func contending(n int, key string, c step.Conflict) step.Spec {
	x := onConflict(n, c)
	x.Key = key
	return x
}

// looksFor runs a verb in a process that looks for kept signals when it inserts.
func looksFor(v verb) verb {
	run := v.run
	v.run = func(ctx context.Context, s *session) {
		s.db = s.looking
		run(ctx, s)
	}
	return v
}

// looksAt asks whether the rows are free that the end of a child needs.
func looksAt(c *step.Claim) verb {
	return verb{name: "look at the end", family: "look", touches: parent, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) (err error) {
			s.free, err = s.db.EndIsFree(ctx, c)
			return err
		}
		s.insist("look", once(ctx), once)
	}}
}

// told requires that a look beside a host's transaction was told the truth: an end is free exactly
// if the host does not have a row locked that it needs.
func (p *play) told(i int) {
	me, host, held := p.rig.cast[i], p.rig.cast[1-i].name, false
	for _, line := range p.trace {
		switch {
		case strings.HasPrefix(line, host+" SELECT id FROM gendurable.gen_durable"):
			held = true
		case line == host+" commit":
			held = false
		case line == me.name+" end is free":
			if me.free == held {
				p.broken = append(p.broken, fmt.Sprintf("look untrue: free: %t, held: %t", me.free, held))
			}
			return
		}
	}
}

// lookMutants are broken forms of the looks.
var lookMutants = []mutant{
	{"look for kept signals before the insert", "looking/insert|keep", "kept beside its occupant", lookFirst},
	{"look for kept signals that finds none", "looking/replace|keep", "kept beside its occupant",
		text("SELECT EXISTS (SELECT FROM {s}.kept_signals k WHERE k.key = ANY($1::text[]))", "SELECT $1::text[] IS NULL")},
	{"expiry of what a late insert may have", "looking/insert, kept|prune", "kept signal lost",
		of("x.expires_at <= (SELECT", text("x.expires_at <= (SELECT", "x.expires_at >= (SELECT"))},
	{"look at an end that waits", "families/look at the end|hold parents", "waited", of("e.from_id = $2::bigint", text("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE"))},
	{"look at an end that sees no lock", "graph/look at the end|hold waiting", "look untrue", of("e.from_id = $2::bigint", text("FOR NO KEY UPDATE SKIP LOCKED", ""))},
	{"look at an end that forgets the nodes behind it", "graph/look at the end|hold waiting", "look untrue",
		of("UNION SELECT e.to_id", text("e.from_id = $2::bigint", "e.from_id = $2::bigint AND false"))},
}

// lookFirst looks for kept signals before the insert that it stands behind.
func lookFirst(_ string, queries []*pgx.QueuedQuery) bool {
	look, settings := find(queries, "SELECT EXISTS (SELECT FROM \"gendurable\".kept_signals k"), find(queries, "set_config('lock_timeout'")
	if look < 0 || settings < 0 {
		return false
	}
	queries[settings].SQL += `, set_config('gendurable.looked', EXISTS (SELECT FROM gendurable.kept_signals k WHERE k.key = 'v')::text, true)`
	queries[look].SQL = `SELECT current_setting('gendurable.looked')::bool AND $1::text[] IS NOT NULL`
	return true
}
