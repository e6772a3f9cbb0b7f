package interleave

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// wokenWorld is the world of signals that claim what they wake. The subject sleeps, under the key
// x; another awaits its children or a signal, a third one has a partition key, and the sibling
// executes.
func wokenWorld() world {
	setup := overdue([]string{parked, sibling,
		row(subjectID, with(with(keyed, ofParent...), "status", "'awaiting_signal'", "awaits", "'{go,stop}'", "await_deadline", "now() - interval '1 s'",
			"correlation_key", "'x'", "visit", "3", "depth", "1", "claim_token", "11")...),
		row(secondID, "status", "'awaiting_children'", "awaits", "'{go}'", "visit", "2", "round", "2", "join_round", "2", "join_size", "1", "children_pending", "1"),
		row(followerID, "status", "'awaiting_signal'", "awaits", "'{go}'", "partition_key", "'k'"),
		row(freedID, "parent_id", "6", "parent_round", "2", "depth", "1", "status", "'awaiting_signal'", "awaits", "'{never}'"),
		signal(24, subjectID, "go", "d"), "UPDATE gendurable.signals SET consumed_at = now() - interval '1 s'"}, subjectID)
	return world{name: "woken", setup: setup, only: func(v verb) bool { return v.family == "wake" }, verbs: []verb{
		wakes("wake", false, byID(subjectID), "go", ""), wakes("wake and end", true, byKey("x"), "stop", ""),
		wakes("wake, for nothing", false, byID(subjectID), "noise", ""), wakes("wake again", false, byKey("x"), "go", "d"),
		wakes("wake who joins", false, byID(secondID), "go", ""), wakes("wake, with a partition key", false, byID(followerID), "go", ""),
		delivers("signal go", byID(subjectID), "go", ""), delivers("signal stop by key", byKey("x"), "stop", ""), delivers("signal who joins", byID(secondID), "go", ""),
		timesOut(), expires(), claims("claim", "default", owner, 10), claims("claim by another", "default", "w2", 10), reaps("reap", 0), prunes(),
		cancels("cancel", subjectID), cancels("cancel child", freedID), operates("pause", store.Pause, subjectID), inserts("insert, same key", spec("x", "")),
		commits("sibling done", false, done(siblingClaim)), holds("hold", subject, subjectID), holds("hold parent", parent, parentID),
		inTurn("signal, claim", delivers("", byID(subjectID), "go", ""), claims("", "default", "w2", 10)),
	}}
}

// awaitedWorld is the world of such signals to an instance that executes, and parks.
func awaitedWorld() world {
	c := &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", Awaited: []step.Signal{{ID: 21, Name: "go"}}}
	setup := []string{row(subjectID, with(executing, "awaits", "'{go}'", "claim_token", "11", "visit", "3")...), signal(21, subjectID, "go", "")}
	return world{name: "awaited", setup: setup, only: func(v verb) bool { return v.family == "wake" }, verbs: []verb{
		wakes("wake", false, byID(subjectID), "go", ""), wakes("wake by stop", true, byID(subjectID), "stop", ""),
		commits("park", false, awaits(c, "t", "go", "stop")), commits("park at itself", false, awaits(c, "s", "go", "stop")),
		commits("park, slow", true, awaits(c, "t", "stop")), transacts("own: park", awaits(c, "t", "go")),
		commits("next", false, next(c)), commits("next, kept", false, kept(c)), commits("done", false, done(c)), commits("done, unless", false, unless(done(c), "stop")),
		commits("retry", false, entry(c, step.Commit{Kind: step.Retry, Step: "s"})),
		beats("beat", c), releases("release", c), cancels("cancel", subjectID), claims("claim", "default", owner, 10),
		inTurn("park, claim", commits("", false, awaits(c, "t", "go")), claims("", "default", "w2", 10)),
	}}
}

// wakes sends a signal that claims what it wakes for the owner, as a process does that has a slot.
// It may also end what it has claimed.
func wakes(name string, end bool, to store.Address, signal, dedup string) verb {
	return verb{name: name, family: "wake", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		var claims []*step.Claim
		once := func(ctx context.Context) error {
			w := store.Waker{Worker: owner, Lease: time.Minute, Queues: []string{"default"}, Machines: []string{"m/1"}}
			d, woken, err := s.db.DeliverClaiming(ctx, to, &step.Signal{Name: signal, DedupKey: dedup}, 100, &w)
			if err != nil && !errors.Is(err, store.ErrNoTarget) {
				return err
			}
			s.facts.delivery(s.name, to, signal, d, err)
			s.facts.claims(s.name, owner, woken.Claims)
			claims = woken.Claims
			if err == nil && woken.Err != nil {
				s.fault("%s: %v", name, woken.Err)
			}
			return nil
		}
		err := once(ctx)
		s.insist("wake", err, once)
		if err != nil || !end || len(claims) == 0 {
			return
		}
		s.commit(ctx, owner, []store.Entry{done(claims[0])}, false)
	}}
}
