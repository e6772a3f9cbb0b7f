package interleave

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// refiled is the world of a gate that concerns others than before. It is closed, and three
// instances still stand in its line, which are behind another gate by now: the subject executes
// with that one's only place, and one is in its line.
func refiled() world {
	c := *gatedClaim
	c.Gate = "n"
	setup := []string{
		`INSERT INTO gendurable.gates (name, machine, places) VALUES ('g', 'x', 0)`,
		`INSERT INTO gendurable.gates (name, machine, step, places) VALUES ('n', 'm', 's', 1)`,
		row(subjectID, placed("gate", "'n'", "place", "1")...), inLine(followerID, "g", 1), inLine(abroadID, "g", 2), inLine(secondID, "g", 3), inLine(freedID, "n", 4),
	}
	again := func(v verb) verb { // as the process does when nobody inserts by the rules of before any more
		run := v.run
		v.run = func(ctx context.Context, s *session) {
			run(ctx, s)
			s.later(func(ctx context.Context) error { return s.refile(ctx, 100) })
		}
		return v
	}
	isRefile := func(v verb) bool { return v.family == "refile" }
	return world{name: "refiled", setup: setup, heeds: true, only: isRefile, verbs: []verb{
		again(refiles("refile", 100)), again(refiles("refile, small pages", 2)), gatedClaims("claim", "w2", "default"), leaves("done", commits("", false, done(&c))),
		holds("hold one", key, followerID), cancels("cancel one", followerID), drops("drop", "n"),
		inTurn("pause, resume one", operates("", store.Pause, followerID), operates("", store.Resume, followerID)),
	}}
}

// refiles goes through all lines, so many instances at a time.
func refiles(name string, page int) verb {
	return verb{name: name, family: "refile", touches: subject | key | rule, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error { return s.refile(ctx, page) }
		s.insist("refile", once(ctx), once)
	}}
}

func (s *session) refile(ctx context.Context, page int) error {
	var at store.Filed
	for more := true; more; {
		var err error
		if _, more, err = s.db.Refile(ctx, &at, page); err != nil {
			return err
		}
	}
	s.facts.refiled = append(s.facts.refiled, []any{s.name})
	return nil
}

// forgotten is the world of keys of a gate that the GC forgets: of all together and of the value b
// nothing is left to know, a owes something.
func forgotten() world {
	hour := func(n int) store.Rate { return store.Rate{N: 1, Per: 1000 * time.Hour, Burst: n} }
	c := *gatedClaim
	c.Gate, c.Labels = "g/a", map[string]string{"c": "a"}
	g := store.Gate{Name: "g", Label: "c", Places: store.NoBound, Total: store.NoBound, Rate: hour(3), TotalRate: hour(4), Adapt: true}
	setup := []string{
		`INSERT INTO gendurable.gates (name, label, rate, rate_per, rate_burst, total_rate, total_rate_per, total_rate_burst, adapt)
		 VALUES ('g', 'c', 1, 3600000000000, 3, 1, 3600000000000, 4, true)`,
		`INSERT INTO gendurable.gate_keys (key, debt, at) VALUES ('g/a', 1, now() - interval '20 min'), ('g/b', 0, now() - interval '20 min'), ('g', 0, now() - interval '20 min')`,
		`INSERT INTO interleave.owed VALUES ('g/a', 1)`, row(subjectID, placed("gate", "'g/a'")...),
		inLine(followerID, "g/a", 1, labelled("a")...), inLine(abroadID, "g/b", 2, labelled("b")...), inLine(freedID, "g/b", 3, labelled("b")...),
	}
	forgets := func(v verb) bool { return v.family == "forget" }
	retries := entry(&c, step.Commit{Kind: step.Retry, Step: "s"})
	return world{name: "forgotten", setup: setup, heeds: true, only: forgets, verbs: []verb{
		forgetsKeys(), gatedClaims("claim", "w2", "default"), gatedClaims("claim one", "w4", "default", few), leaves("retry", commits("", false, retries)),
		inTurn("lower, claim", changes("", g, func(g *store.Gate) { g.Rate.Burst, g.TotalRate.Burst = 1, 2 }), gatedClaims("", "w4", "default")),
		throttles("throttle", "g/b"), closes("close", "g/b"), weighs("weigh", "g/b"), grants("grant", "g/b", 1), drops("drop", "g"), cancels("cancel", followerID),
	}}
}

// forgetsKeys is the GC in a process that has gates.
func forgetsKeys() verb {
	return verb{name: "forget", family: "forget", touches: key | rule, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.Prune(ctx, store.PruneParams{Done: time.Hour, Failed: time.Hour, Tombstones: 1, Limit: 100, Gates: true})
			return err
		}
		s.insist("forget", once(ctx), once)
	}}
}

// weighs is an operator who gives a key of a gate a weight.
func weighs(name, at string) verb {
	return verb{name: name, family: "operator", touches: key | rule, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.WeighGateKey(ctx, at, 3, by)
			if err == nil {
				s.facts.weighed = append(s.facts.weighed, []any{at})
			}
			return err
		}
		s.insist("weigh", once(ctx), once)
	}}
}

// grants is an operator who gives a key of a gate its own places.
func grants(name, at string, places int) verb {
	return verb{name: name, family: "operator", touches: key | rule, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.PlaceGateKey(ctx, at, places, by)
			if err == nil {
				s.facts.granted = append(s.facts.granted, []any{at, places})
			}
			return err
		}
		s.insist("grant", once(ctx), once)
	}}
}

// gateMutants are broken forms of the statements of this file.
var gateMutants = []mutant{
	{"refile that waits", "refiled/refile|hold one", "waited", of("l.now_at IS NULL THEN 0", text("FOR NO KEY UPDATE OF g SKIP LOCKED) x", "FOR NO KEY UPDATE OF g) x"))},
	{"refile that locks nothing", "refiled/refile|cancel one", "waited", of("l.now_at IS NULL THEN 0", text("FOR NO KEY UPDATE OF g SKIP LOCKED) x", ") x"))},
	{"refile that moves nobody", "refiled/refile|claim", "in line elsewhere", text("WHERE x.gate IS DISTINCT FROM x.now_at", "WHERE false")},
	{"refile of the first page", "refiled/refile, small pages|done", "in line elsewhere",
		of("l.now_at IS NULL THEN 0", text("SELECT (SELECT count(*) FROM p), (SELECT coalesce", "SELECT 0, (SELECT coalesce", "LIMIT $6::bigint", "LIMIT least(1, $6::bigint)"))},
	{"forgetting of what owes", "forgotten/forget|claim", "rate not paid", of("b.places IS NULL AND b.at <", text(" = 0 AND ", " >= 0 AND "))},
	{"forgetting of places", "forgotten/forget|grant", "granted in word only", text("b.weight = 1 AND b.places IS NULL AND", "b.weight = 1 AND")},
	{"forgetting that waits", "forgotten/forget|throttle", "waited", of("b.places IS NULL AND b.at <", text("FOR UPDATE OF b SKIP LOCKED", "FOR UPDATE OF b"))},
	{"forgetting without a second look", "forgotten/forget|close", "closed in word only",
		of("b.places IS NULL AND b.at <", text("FOR UPDATE OF b SKIP LOCKED", ""))},
}
