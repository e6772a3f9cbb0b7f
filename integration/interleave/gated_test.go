package interleave

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// behindGate is the gate of the world "gated". It has one place.
const behindGate = "g"

// gated is the world of a gate: the subject executes with its only place, the follower is in line,
// and another instance is in front without a place. Sessions look at the gate as the worker does:
// after a claim that has put somebody in line, and after what ends the subject's claim.
func gated() world {
	c := &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", Gate: behindGate}
	placed := with(executing, "claim_token", "11", "visit", "3", "gate", "'g'", "place", "1")
	setup := []string{
		`INSERT INTO gendurable.gates (name, machine, places) VALUES ('g', 'm', 1)`, row(subjectID, placed...),
		row(followerID, "gate", "'g'", "pick_lane", "3", "eligible_at", "now() - interval '5 s'"), row(abroadID, "eligible_at", "now() - interval '4 s'"),
	}
	held := holds("hold the first", key, followerID)
	return world{name: "gated", setup: setup, verbs: []verb{
		gatedClaims("claim", "w2"), gatedClaims("claim again", "w3"), admits("admit"),
		leaves("done", commits("", false, done(c))), leaves("next", commits("", false, next(c))),
		leaves("retry", commits("", false, entry(c, step.Commit{Kind: step.Retry, Step: "s"}))), leaves("release", releases("", c)),
		leaves("done, slow", commits("", true, done(c))), inTurn("cancel, look", cancels("", subjectID), looks()),
		held, inTurn("cancel the first, look", cancels("", followerID), looks()), operates("pause the first", store.Pause, followerID),
		inTurn("pause, resume the first", operates("", store.Pause, followerID), operates("", store.Resume, followerID)),
		inTurn("raise, look", changes("", `UPDATE gendurable.gates SET places = 2`), looks()), changes("close", `UPDATE gendurable.gates SET places = 0`),
		inTurn("drop, look", changes("", `DELETE FROM gendurable.gates`), looks()), looks(),
	}}
}

// gatedClaims claims as a process that knows of gates, and looks at those of which it is told.
func gatedClaims(name, worker string) verb {
	return verb{name: name, family: "claim", touches: subject | key, turns: 9, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		var lines []string
		once := func(ctx context.Context) error {
			c, err := s.db.Claim(ctx, store.ClaimParams{Queue: "default", Worker: worker, Machines: []string{"m/1"}, Limit: 10, Window: 100,
				Lease: time.Minute, Gated: true})
			if lines = c.Lines; err == nil {
				s.facts.claims(s.name, worker, c.Claims)
			}
			return err
		}
		s.insist("claim", once(ctx), once)
		if len(lines) > 0 {
			s.admit(ctx)
		}
	}}
}

// leaves ends the subject's claim, and then looks at the gate: later, if the end had to be
// repeated.
func leaves(name string, end verb) verb {
	end.name = name
	ends := end.run
	end.touches |= key
	end.mayMeetKey = true
	end.run = func(ctx context.Context, s *session) {
		ends(ctx, s)
		s.admit(ctx)
		s.later(func(ctx context.Context) error {
			if s.leftOut > 0 {
				s.admit(ctx)
			}
			return nil
		})
	}
	return end
}

func admits(name string) verb {
	return verb{name: name, family: "admit", touches: key, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) { s.admit(ctx) }}
}

// looks looks through all lines, and admits at the gates with a free place.
func looks() verb {
	return verb{name: "look", family: "admit", touches: key, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		_, free, err := s.db.Lines(ctx, "", 10, time.Hour)
		again := func(ctx context.Context) error { return err }
		s.insist("look", err, again)
		if len(free) > 0 {
			s.admit(ctx)
		}
	}}
}

// changes is an operator who changes the gate.
func changes(name, sql string) verb {
	return verb{name: name, family: "operator", touches: key, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error { return s.pipeline(ctx, entpgx.Stmt{Name: "change", SQL: sql}) }
		s.insist("change", once(ctx), once)
	}}
}

// admit does what the worker does about a gate: it looks at once, and again after the schedule if
// it has missed it.
func (s *session) admit(ctx context.Context) {
	queues, pass := []string{"default"}, false
	look := func(ctx context.Context) (missed bool, err error) {
		p, err := s.db.Admit(ctx, []string{behindGate}, []bool{pass}, queues)
		return len(p.Missed) > 0, err
	}
	missed, err := look(ctx)
	if err != nil && !s.transient("admit", err) || err == nil && !missed {
		return
	}
	s.later(func(ctx context.Context) error {
		for range tries {
			if missed, err = look(ctx); err == nil && !missed {
				return nil
			}
		}
		return fmt.Errorf("gate %q cannot be looked at: %w", behindGate, err)
	})
}
