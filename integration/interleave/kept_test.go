package interleave

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// keyed is the scope of live instances.
var keyed = []string{"correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children}'"}

// keptFor is a signal that is kept for a key, until so long from now.
func keptFor(id int64, at, name, dedup, left string) string {
	return fmt.Sprintf(`INSERT INTO gendurable.kept_signals (id, key, name, dedup_key, inserted_at, expires_at) OVERRIDING SYSTEM VALUE
		VALUES (%d, '%s', '%s', nullif('%s', ''), now() - interval '1 h', now() + interval '%s')`, id, at, name, dedup, left)
}

// keeping is the world of kept signals. No instance has the key x, for which two are kept. The
// subject executes under the key y. The nephew, under z, awaits a signal that a process kept for it
// which its insert did not know of, and that has expired meanwhile; no instance had w in time.
func keeping() world {
	c := &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", CorrelationKey: "y"}
	mother := &step.Claim{ID: siblingID, Token: 12, Visit: 1, Step: "s", Queue: "default"}
	setup := []string{
		row(subjectID, with(with(executing, keyed...), "claim_token", "11", "visit", "3", "correlation_key", "'y'")...),
		row(siblingID, with(executing, "claim_token", "12", "visit", "1")...),
		row(nephewID, with(keyed, "correlation_key", "'z'", "status", "'awaiting_signal'", "awaits", "'{go}'", "inserted_at", "now() - interval '1 min'")...),
		row(freedID, with(keyed, "correlation_key", "'x'", "status", "'failed'", "failure", "'error'", "finished_at", "now()")...),
		keptFor(31, "x", "go", "a", "1 h"), keptFor(32, "x", "stop", "", "1 h"),
		keptFor(33, "z", "go", "", "-1 s"), keptFor(34, "w", "go", "", "-1 s"),
	}
	const x, y, z = loner, subject, pulses // what the keys stand for: who shares none cannot meet
	return world{name: "keeping", setup: setup, only: func(v verb) bool { return v.family == "keep" }, verbs: []verb{
		at(x, keeps("keep", "x", "go", "b")), at(x, keeps("keep again", "x", "go", "a")), at(y, keeps("keep at the subject", "y", "go", "")),
		at(x, knowing(inserts("insert", spec("x", "")))), at(x, knowing(arrives("start", "x", "go", "a"))),
		at(x, knowing(commits("spawn", true, spawns(mother, spec("x", ""))))),
		at(x, handsOver(inserts("insert unknowing", spec("x", "")))), at(x, handsOver(revives("retry", freedID))),
		at(y, commits("done", false, done(c))), at(y, commits("dropped", false, dropped(c))), at(y, cancels("cancel", subjectID)),
		at(z, holds("hold the nephew", z, nephewID)), at(x|z, handsOver(verb{name: "hand over", family: "keep", quick: true, run: func(ctx context.Context, s *session) {
			s.insist("hand over", s.handOver(ctx), s.handOver)
		}})), at(z, prunes()),
	}}
}

// at says which keys a verb is about.
func at(keys things, v verb) verb {
	v.touches = keys
	return v
}

// dropping is the world of an instance that is not to be kept, and that has no parent: its row goes
// with its Done, whatever else comes.
func dropping() world {
	setup := []string{parked,
		row(subjectID, with(with(expired, addressed...), "awaits", "'{go}'", "claim_token", "11", "retain", "'{0,-1,-1}'")...),
		"UPDATE gendurable.gen_durable SET depth = 0, children_pending = children_pending / 2",
		sibling, follower("1", "1")}
	c := orphanClaim
	ends := func(v verb) bool { return v.family == "commit" || v.family == "commit, slow lane" }
	return world{name: "dropping", setup: overdue(append(setup, inbox...), subjectID), only: ends, verbs: []verb{
		commits("done", false, dropped(c)), commits("done, slow", true, dropped(c)), sole(commits("done, unless", false, unless(dropped(c), "stop"))),
		sole(commits("batch: done, done", false, dropped(c), done(siblingClaim))), sole(commits("batch: done, kept", false, dropped(c), kept(siblingClaim))),
		delivers("signal go", byID(subjectID), "go", ""), delivers("signal stop", byID(subjectID), "stop", ""), delivers("signal by key", byKey("x"), "go", ""),
		arrives("start", "x", "go", ""), inserts("insert, same key", spec("x", "")), keeps("keep", "x", "go", ""),
		cancels("cancel", subjectID), operates("pause", store.Pause, subjectID), holds("hold", subject, subjectID), refers(subject, subjectID),
		reaps("reap", 0), inTurn("reap, claim", reaps("", 0), claims("", "default", owner, 10)), expires(),
		beats("beat", c), releases("release", c), claims("claim", "default", owner, 10), promotes(), sweeps(), prunes(),
	}}
}

// dropped is the Done of an instance whose row goes with it.
func dropped(c *step.Claim) store.Entry {
	e := done(c)
	e.Drop = true
	return e
}

// keeps sends a signal to a key, to be kept for an hour if it is free.
func keeps(name, at, signal, dedup string) verb {
	return verb{name: name, family: "keep", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			d, err := s.knowing.Keep(ctx, byKey(at), &step.Signal{Name: signal, DedupKey: dedup, Keep: time.Hour}, 100)
			switch {
			case err == nil && d.Kept:
				s.facts.keeps(s.name, at, signal, d.Duplicate)
				return nil
			case err == nil, errors.Is(err, store.ErrNoTarget):
				s.facts.delivery(s.name, byKey(at), signal, d, err)
				return nil
			}
			return err
		}
		s.insist("keep", once(ctx), once)
	}}
}

// knowing runs a verb in a process that knows that signals are kept.
func knowing(v verb) verb {
	run := v.run
	v.run = func(ctx context.Context, s *session) {
		s.db = s.knowing
		run(ctx, s)
	}
	return v
}

// handsOver runs a verb. When the others are done, it does what the polls do while signals are
// kept.
func handsOver(v verb) verb {
	run := v.run
	v.run = func(ctx context.Context, s *session) {
		run(ctx, s)
		s.later(s.handOver)
	}
	return v
}

func (s *session) handOver(ctx context.Context) error {
	_, err := s.knowing.HandOver(ctx, "")
	s.facts.looked = append(s.facts.looked, []any{s.name})
	return err
}

// keeps notes that a signal was reported as kept.
func (f *facts) keeps(actor, key, name string, duplicate bool) {
	f.shelved = append(f.shelved, []any{actor, key, name, duplicate})
}
