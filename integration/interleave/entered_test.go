package interleave

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// enteredWorld is the world of inserts as claimed: by the worker that also executes the subject,
// under the key x. Another instance that had y has failed, and a signal is kept for z.
func enteredWorld() world {
	c := &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", CorrelationKey: "x"}
	setup := []string{
		row(subjectID, with(with(executing, keyed...), "claim_token", "11", "visit", "3", "correlation_key", "'x'")...),
		row(siblingID),
		row(freedID, with(keyed, "correlation_key", "'y'", "status", "'failed'", "failure", "'error'", "finished_at", "now() - interval '1 day'")...),
		keptFor(31, "z", "go", "a", "1 h"),
	}
	entering := func(v verb) bool { return v.family == "enter" }
	return world{name: "entered", setup: setup, only: entering, verbs: []verb{
		enters("enter", false, spec("x", "")), enters("enter and end", true, spec("x", "")),
		handsOver(enters("enter many", true, spec("y", ""), spec("x", ""), spec("", ""), spec("z", ""))),
		knowing(enters("enter, knowing", false, spec("z", ""))),
		inserts("insert", spec("x", "")), handsOver(inserts("insert many", spec("z", ""), spec("y", "k"), spec("x", ""))), arrives("start", "x", "go", ""),
		keeps("keep", "z", "go", "b"), delivers("signal", byKey("x"), "go", ""), delivers("signal y", byKey("y"), "go", ""),
		commits("done", false, done(c)), commits("next, kept", false, kept(c)), cancels("cancel", subjectID), revives("retry", freedID),
		beats("beat", c), releases("release", c), claims("claim", "default", owner, 10), claims("claim by another", "default", "w2", 10),
		reaps("reap", 0), prunes(), operates("pause", store.Pause, subjectID), holds("hold", subject, subjectID), holds("hold what is free", guard, freedID),
	}}
}

// enters inserts instances as claimed by the owner, as a process does that has slots for them. If
// that does not succeed, it inserts them as usual. It may also end what it has claimed.
func enters(name string, end bool, specs ...step.Spec) verb {
	return verb{name: name, family: "enter", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		list := make([]*step.Spec, len(specs))
		for i := range specs {
			x := specs[i]
			x.UID = uuid.New()
			list[i] = &x
		}
		insertion := s.db.Insertion(list)
		if !insertion.Claim(owner, time.Minute) {
			s.fault("%s: does not claim", name)
		}
		once := func(ctx context.Context) error {
			in, err := insertion.Try(ctx)
			if err != nil {
				return err
			}
			for i := range in {
				s.facts.insertion(s.name, list[i].Key, in[i])
			}
			s.facts.claims(s.name, owner, insertion.Claims())
			return nil
		}
		err := once(ctx)
		s.insist("enter", err, once)
		if err != nil || !end || len(insertion.Claims()) == 0 {
			return
		}
		var entries []store.Entry
		for _, c := range insertion.Claims() {
			entries = append(entries, done(c))
		}
		s.commit(ctx, owner, entries, false)
	}}
}
