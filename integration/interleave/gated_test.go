package interleave

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// gatedWorlds are the worlds of gates. After each schedule a worker claims what it can. No time
// passes in a schedule that would count for a rate.
func gatedWorlds() []world {
	return []world{gated(), shared(), rated(), seated(), running(), refiled(), forgotten(), called()}
}

// claiming reports whether a verb is a claim. Where no claim takes part, nothing happens at a gate
// that the world "gated" does not have.
func claiming(v verb) bool { return v.family == "claim" }

// by is the operator of these worlds.
var by = store.By{Actor: "interleave"}

// inLine inserts an instance that stands in line at a gate, and labelled are its labels.
func inLine(id int64, key string, second int, more ...string) string {
	return row(id, with(more, "gate", "'"+key+"'", "pick_lane", "3", "eligible_at", fmt.Sprintf("now() - interval '1 min' + interval '%d s'", second))...)
}

func labelled(value string) []string {
	return []string{"labels", fmt.Sprintf(`'{"c": %q}'`, value)}
}

// placed are the columns of the subject while it executes, with these places. Its lease has
// expired.
func placed(columns ...string) []string {
	return with(with(expired, "claim_token", "11", "visit", "3"), columns...)
}

var gatedClaim = &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", Gate: "g"}

// gated is the world of a gate: the subject executes with its only place, the follower is in line,
// and another instance is in front.
func gated() world {
	c := gatedClaim
	g := store.Gate{Name: "g", Machine: "m", Step: "s", Places: 1, Total: store.NoBound}
	setup := []string{
		`INSERT INTO gendurable.gates (name, machine, step, places) VALUES ('g', 'm', 's', 1)`,
		row(subjectID, placed("gate", "'g'", "place", "1")...), inLine(followerID, "g", 55), row(abroadID, "eligible_at", "now() - interval '4 s'"),
	}
	return world{name: "gated", setup: setup, heeds: true, verbs: join(ends(c), []verb{
		gatedClaims("claim", "w2", "default"), gatedClaims("claim again", "w3", "default"),
		leaves("next", commits("", false, next(c))), leaves("done, slow", commits("", true, done(c))), holds("hold the first", key, followerID),
		inTurn("cancel the first, claim", cancels("", followerID), gatedClaims("", "w4", "default")), operates("pause the first", store.Pause, followerID),
		inTurn("pause, resume the first", operates("", store.Pause, followerID), operates("", store.Resume, followerID)),
		inserts("insert", spec("", "")),
		inTurn("raise, claim", changes("", g, func(g *store.Gate) { g.Places = 2 }), gatedClaims("", "w4", "default")),
		changes("close", g, func(g *store.Gate) { g.Places = 0 }), drops("drop", "g"),
	})}
}

// shared is the world of a gate with a place for each value of a label, and two for all: the
// subject executes with one, another instance with the other, and three are in line.
func shared() world {
	c := *gatedClaim
	c.Gate, c.Labels = "g/a", map[string]string{"c": "a"}
	g := store.Gate{Name: "g", Label: "c", Places: 1, Total: 2}
	setup := []string{
		`INSERT INTO gendurable.gates (name, label, places, total) VALUES ('g', 'c', 1, 2)`,
		row(subjectID, with(placed("gate", "'g/a'", "place", "1"), labelled("a")...)...),
		row(secondID, with(with(executing, "claim_token", "12", "gate", "'g/d'", "place", "1"), labelled("d")...)...),
		inLine(followerID, "g/a", 1, labelled("a")...), inLine(abroadID, "g/b", 2, labelled("b")...), inLine(freedID, "g/d", 3, labelled("d")...),
	}
	return world{name: "shared", setup: setup, heeds: true, only: claiming, verbs: join(ends(&c), []verb{
		gatedClaims("claim", "w2", "default"), gatedClaims("claim again", "w3", "default"), holds("hold one", key, abroadID),
		inTurn("raise, claim", changes("", g, func(g *store.Gate) { g.Total = 3 }), gatedClaims("", "w4", "default")),
		inTurn("grant, raise, claim", grants("", "g/a", 2), changes("", g, func(g *store.Gate) { g.Total = 3 }), gatedClaims("", "w4", "default")),
		inTurn("lower, claim", changes("", g, func(g *store.Gate) { g.Total = 1 }), gatedClaims("", "w4", "default")),
		changes("bound all only", g, func(g *store.Gate) { g.Places = store.NoBound }),
	})}
}

// rated is the world of a gate with rates: of the value a, which owes something, two may begin, of
// b, of which nothing is known, three, and four of all.
func rated() world {
	hour := func(n int) store.Rate { return store.Rate{N: 1, Per: 1000 * time.Hour, Burst: n} }
	c := *gatedClaim
	c.Gate, c.Labels = "g/a", map[string]string{"c": "a"}
	g := store.Gate{Name: "g", Label: "c", Places: store.NoBound, Total: store.NoBound, Rate: hour(3), TotalRate: hour(4), Adapt: true}
	setup := []string{
		`INSERT INTO gendurable.gates (name, label, rate, rate_per, rate_burst, total_rate, total_rate_per, total_rate_burst, adapt)
		 VALUES ('g', 'c', 1, 3600000000000, 3, 1, 3600000000000, 4, true)`,
		`INSERT INTO gendurable.gate_keys (key, debt) VALUES ('g/a', 1)`, `INSERT INTO interleave.owed VALUES ('g/a', 1)`,
		row(subjectID, with(placed("gate", "'g/a'"), labelled("a")...)...),
	}
	for i, value := range []string{"a", "a", "a", "b", "b", "b", "b"} {
		setup = append(setup, inLine(int64(200+i), "g/"+value, i, labelled(value)...))
	}
	return world{name: "rated", setup: setup, heeds: true, only: claiming, verbs: []verb{
		gatedClaims("claim", "w2", "default"), gatedClaims("claim again", "w3", "default"), gatedClaims("claim one", "w4", "default", few),
		leaves("next", commits("", false, next(&c))), leaves("retry", commits("", false, entry(&c, step.Commit{Kind: step.Retry, Step: "s"}))),
		inTurn("raise, claim", changes("", g, func(g *store.Gate) { g.Rate.Burst, g.TotalRate.Burst = 4, 5 }), gatedClaims("", "w4", "default")),
		inTurn("lower, claim", changes("", g, func(g *store.Gate) { g.Rate.Burst, g.TotalRate.Burst = 1, 2 }), gatedClaims("", "w4", "default")),
		throttles("throttle", "g/b"), throttles("throttle a known one", "g/a"), closes("close", "g/b"), cancels("cancel", 200),
		holds("hold the first", key, 203),
	}}
}

// seated is the world of a gate of a queue: the subject executes in one of two seats, and others
// are in front, and in line at a gate that lets all of them begin.
func seated() world {
	c := *gatedClaim
	c.Queue, c.Gate = "other", ""
	g := store.Gate{Name: "q", Queue: "other", Places: 2, Total: store.NoBound, Rate: store.Rate{N: 1, Per: 1000 * time.Hour, Burst: 3}}
	there := []string{"queue", "'other'"}
	setup := []string{
		`INSERT INTO gendurable.gates (name, queue, places, rate, rate_per, rate_burst) VALUES ('q', 'other', 2, 1, 3600000000000, 3)`,
		`INSERT INTO gendurable.gates (name, label, places) VALUES ('g', 'c', 9)`,
		row(subjectID, with(placed("seat", "1"), there...)...),
		inLine(followerID, "g/a", 1, with(there, labelled("a")...)...), row(abroadID, there...), row(freedID, there...), row(secondID, there...),
	}
	return world{name: "seated", setup: setup, heeds: true, only: claiming, verbs: join(ends(&c), []verb{
		gatedClaims("claim", "w2", "other"), gatedClaims("claim again", "w3", "other"), gatedClaims("claim one", "w4", "other", few),
		holds("hold one", key, abroadID), cancels("cancel one", abroadID),
		inTurn("raise, claim", changes("", g, func(g *store.Gate) { g.Places, g.Rate.Burst = 3, 9 }), gatedClaims("", "w4", "other")),
		changes("rate only", g, func(g *store.Gate) { g.Places = store.NoBound }), drops("drop", "q"),
	})}
}

// running is the world of a gate for whole runs: the subject has begun, and executes. One of its
// kind is in line, and one in front.
func running() world {
	c := *gatedClaim
	c.Gate, c.Labels = "", map[string]string{"c": "a"}
	g := store.Gate{Name: "g", Label: "c", Places: 1, Total: store.NoBound, Run: true}
	setup := []string{
		`INSERT INTO gendurable.gates (name, label, places, run) VALUES ('g', 'c', 1, true)`,
		row(subjectID, with(placed("run_gate", "'g/a'", "run_place", "1"), labelled("a")...)...),
		inLine(followerID, "g/a", 1, labelled("a")...), row(abroadID, labelled("a")...),
	}
	return world{name: "running", setup: setup, heeds: true, only: claiming, verbs: join(ends(&c), []verb{
		gatedClaims("claim", "w2", "default"), gatedClaims("claim again", "w3", "default"), leaves("next", commits("", false, next(&c))),
		leaves("park", commits("", false, awaits(&c, "t", "go"))), leaves("stop", commits("", false, stopped(&c))), holds("hold the first", key, followerID),
		inTurn("cancel, retry, claim", cancels("", subjectID), revives("", subjectID), gatedClaims("", "w4", "default")),
		inTurn("raise, claim", changes("", g, func(g *store.Gate) { g.Places = 2 }), gatedClaims("", "w4", "default")), drops("drop", "g"),
	})}
}

// ends are ends of the subject's claim.
func ends(c *step.Claim) []verb {
	return []verb{
		leaves("done", commits("", false, done(c))), leaves("retry", commits("", false, entry(c, step.Commit{Kind: step.Retry, Step: "s"}))),
		leaves("release", releases("", c)), inTurn("cancel, claim", cancels("", subjectID), gatedClaims("", "w4", c.Queue)),
		leaves("reap", reaps("", 0)),
	}
}

// few claims one.
func few(p *store.ClaimParams) { p.Limit, p.Window = 1, 1 }

// gatedClaims claims as a process that knows of gates: again, if another claim had the gate.
func gatedClaims(name, worker, queue string, how ...func(*store.ClaimParams)) verb {
	return verb{name: name, family: "claim", touches: subject | key, turns: 5, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error { return s.claimAtGates(ctx, worker, queue, how...) }
		s.insist("claim", once(ctx), once)
	}}
}

func (s *session) claimAtGates(ctx context.Context, worker, queue string, how ...func(*store.ClaimParams)) error {
	p := store.ClaimParams{Queue: queue, Worker: worker, Machines: []string{"m/1"}, Limit: 10, Window: 100, Lease: time.Minute, Gated: true,
		Seats: queue == "other"}
	for _, f := range how {
		f(&p)
	}
	c, err := s.db.Claim(ctx, p)
	if err == nil {
		s.facts.claims(s.name, worker, c.Claims)
	}
	return err
}

// leaves ends the subject's claim.
func leaves(name string, end verb) verb {
	end.name, end.mayMeetKey = name, true
	end.touches |= key
	return end
}

// claimsOn claims after the schedule, as every worker does when it polls: in some rounds the row in
// front gets in line, and is claimed if it may.
func (s *session) claimsOn(ctx context.Context) error {
	for range 3 {
		for _, queue := range []string{"default", "other"} {
			if err := s.claimAtGates(ctx, "w9", queue); err != nil {
				return err
			}
		}
	}
	return nil
}

// changes is an operator who changes a gate.
func changes(name string, g store.Gate, change func(*store.Gate)) verb {
	change(&g)
	return verb{name: name, family: "operator", touches: key | rule, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.SetGate(ctx, g, by)
			return err
		}
		s.insist("change", once(ctx), once)
	}}
}

// drops is an operator who drops a gate.
func drops(name, gate string) verb {
	return verb{name: name, family: "operator", touches: key | rule, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.DropGate(ctx, gate, by)
			return err
		}
		s.insist("drop", once(ctx), once)
	}}
}

// throttles notes that a key of a gate that adapts was told of too many requests.
func throttles(name, at string) verb {
	return verb{name: name, family: "throttle", touches: key | rule, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			err := s.db.Throttle(ctx, at, 0)
			if err == nil {
				s.facts.throttled = append(s.facts.throttled, []any{at})
			}
			return err
		}
		s.insist("throttle", once(ctx), once)
	}}
}

// closes is an operator who closes a key of a gate.
func closes(name, at string) verb {
	return verb{name: name, family: "operator", touches: key | rule, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.CloseGateKey(ctx, at, time.Now().Add(time.Hour), by)
			if err == nil {
				s.facts.closed = append(s.facts.closed, []any{at})
			}
			return err
		}
		s.insist("close", once(ctx), once)
	}}
}
