package interleave

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

const (
	// lostClaim notes that the subject's claim was taken away.
	lostClaim = `INSERT INTO gendurable.lost_claims (partition_key, worker, claim_token) VALUES ('k', '` + owner + `', 11)`
	another   = "w2"
)

// The facts about the worker that lost the claim: whether it lives, that is, whether a session has
// its liveness lock.
var (
	vacant []string
	living = []string{`INSERT INTO interleave.alive VALUES ('` + owner + `')`,
		`SELECT pg_advisory_lock_shared(hashtextextended('gendurable gendurable ` + owner + `', 0))`}
)

// taken is the world of a claim that was taken away while its step ran. The next of its key may be
// claimed, and its claim brings that a lost claim lingers.
func taken(name string, worker []string) world {
	setup := []string{
		row(subjectID, with(addressed, "claim_token", "11", "crashes", "1")...), "UPDATE gendurable.gen_durable SET depth = 0",
		follower("1", "0"), lostClaim,
	}
	asks := func(v verb) bool { return v.family == "lost claim" }
	return world{name: name, setup: append(setup, worker...), only: asks, verbs: []verb{
		lingers("ask", another), lingers("ask elsewhere", "w3"), lands("land"),
		sweepsLost("sweep", &store.InFlight{Worker: another, Lease: time.Microsecond}, false),
		sweepsLost("sweep, in flight", &store.InFlight{Worker: owner, Tokens: []int64{subjectClaim.Token}, Lease: time.Microsecond}, false),
		sweepsLost("sweep, not begun", &store.InFlight{Worker: owner, Lease: time.Hour}, false),
		sweepsLost("sweep, never begun", &store.InFlight{Worker: owner, Lease: time.Microsecond}, true),
		claims("claim", "default", owner, 10), claims("claim by another", "default", another, 10), claims("claim elsewhere", "other", "w3", 10),
		commits("zombie: done", false, done(orphanClaim)), cancels("cancel", subjectID), promotes(),
		inTurn("claim, cancel", claims("", "default", another, 10), cancels("", subjectID)),
	}}
}

// lingers asks whether a lost claim lingers under the key, as the ring does for a claim that has to
// wait, and once more when the others are done.
func lingers(name, worker string) verb {
	return verb{name: name, family: "lost claim", touches: key, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			found, err := s.db.Lingering(ctx, worker, []string{"k"})
			if err == nil {
				s.facts.asks(worker, "k", slices.Contains(found, "k"))
			}
			return err
		}
		if err := once(ctx); err != nil && !s.transient(name, err) {
			return
		}
		s.later(once)
	}}
}

// lands reports that the step of the lost claim has ended. It may meet a transaction that deletes
// the same note, and waits for its end.
func lands(name string) verb {
	return verb{name: name, family: "lost claim", touches: key, run: func(ctx context.Context, s *session) {
		s.facts.lands(owner, subjectClaim.Token)
		once := func(ctx context.Context) error { return s.db.Landed(ctx, owner, []int64{subjectClaim.Token}) }
		s.insist(name, once(ctx), once)
	}}
}

// sweepsLost sweeps the keys, and the notes of lost claims of which nothing runs. over: the worker
// knows that nothing of the lost claim runs, nor will.
func sweepsLost(name string, own *store.InFlight, over bool) verb {
	return verb{name: name, family: "lost claim", touches: key, quick: true, run: func(ctx context.Context, s *session) {
		if over {
			s.facts.lands(owner, subjectClaim.Token)
		}
		once := func(ctx context.Context) error {
			_, p, err := s.db.Sweep(ctx, "", 100, own)
			s.promoteMissed(p.Missed)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}
		s.insist(name, once(ctx), once)
	}}
}
