package interleave

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// gated is the world of a gate: the subject executes with its only place, the follower is in line,
// and another instance is in front. Sessions claim once more after what ends the subject's claim,
// as the worker does.
func gated() world {
	c := &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", Gate: "g"}
	placed := with(executing, "claim_token", "11", "visit", "3", "gate", "'g'", "place", "1")
	setup := []string{
		`INSERT INTO gendurable.gates (name, machine, places) VALUES ('g', 'm', 1)`, row(subjectID, placed...),
		row(followerID, "gate", "'g'", "pick_lane", "3", "eligible_at", "now() - interval '5 s'"), row(abroadID, "eligible_at", "now() - interval '4 s'"),
	}
	held := holds("hold the first", key, followerID)
	return world{name: "gated", setup: setup, verbs: []verb{
		gatedClaims("claim", "w2"), gatedClaims("claim again", "w3"),
		leaves("done", commits("", false, done(c))), leaves("next", commits("", false, next(c))),
		leaves("retry", commits("", false, entry(c, step.Commit{Kind: step.Retry, Step: "s"}))), leaves("release", releases("", c)),
		leaves("done, slow", commits("", true, done(c))), inTurn("cancel, claim", cancels("", subjectID), gatedClaims("", "w4")),
		held, inTurn("cancel the first, claim", cancels("", followerID), gatedClaims("", "w4")), operates("pause the first", store.Pause, followerID),
		inTurn("pause, resume the first", operates("", store.Pause, followerID), operates("", store.Resume, followerID)),
		inTurn("raise, claim", changes("", store.Gate{Places: 2}), gatedClaims("", "w4")), changes("close", store.Gate{}),
		changes("drop", store.Gate{Places: store.NoBound}),
	}}
}

// gatedClaims claims as a process that knows of gates: again, if another claim had the gate.
func gatedClaims(name, worker string) verb {
	return verb{name: name, family: "claim", touches: subject | key, turns: 6, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error { return s.claimAtGates(ctx, worker) }
		s.insist("claim", once(ctx), once)
		s.claimLater(worker)
	}}
}

// claimLater claims again after the schedule, as every worker does when it polls: in three rounds
// whoever is in front gets in line, and is claimed if there is a place.
func (s *session) claimLater(worker string) {
	s.later(func(ctx context.Context) error {
		for range 3 {
			if err := s.claimAtGates(ctx, worker); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *session) claimAtGates(ctx context.Context, worker string) error {
	c, err := s.db.Claim(ctx, store.ClaimParams{Queue: "default", Worker: worker, Machines: []string{"m/1"}, Limit: 10, Window: 100,
		Lease: time.Minute, Gated: true})
	if err == nil {
		s.facts.claims(s.name, worker, c.Claims)
	}
	return err
}

// leaves ends the subject's claim.
func leaves(name string, end verb) verb {
	end.name = name
	end.touches |= key
	end.mayMeetKey = true
	ends := end.run
	end.run = func(ctx context.Context, s *session) {
		ends(ctx, s)
		s.claimLater("w5")
	}
	return end
}

// changes is an operator who changes the gate, or drops it if it bounds nothing any more.
func changes(name string, to store.Gate) verb {
	return verb{name: name, family: "operator", touches: key, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) (err error) {
			if to.Places == store.NoBound {
				_, err = s.db.DropGate(ctx, "g", store.By{Actor: "interleave"})
				return err
			}
			_, err = s.db.SetGate(ctx, store.Gate{Name: "g", Machine: "m", Places: to.Places, Total: store.NoBound}, store.By{Actor: "interleave"})
			return err
		}
		s.insist("change", once(ctx), once)
		s.claimLater("w5")
	}}
}
