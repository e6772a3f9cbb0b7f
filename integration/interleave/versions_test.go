package interleave

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// These are the worlds of verbs that change an instance from outside of its steps: edits and
// rewinds that were decided from a copy, eager migrations, claims that are set aside and recalled.
// A session of theirs reads the copy as a separate turn, so that everything comes in between, too.

// strayID is set aside at its step.
const strayID = freedID

// edits decides from a copy of an instance, as Edit and Rewind do, and then orders that.
func edits(name string, v store.Verb, id int64, on things, change ...func(*store.Edit, *store.Order)) verb {
	return verb{name: name, family: "edit", touches: on | key | guard, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			row, err := query.New(s.db).Get(ctx, byID(id))
			if err != nil {
				return err
			}
			o := store.Order{Verb: v, By: store.By{Actor: s.name}, Most: 100, Edits: map[int64]store.Edit{}}
			e := store.Edit{Version: row.Version, Visit: row.Visit, Old: row.State, New: marked(s.name, name), To: "t"}
			for _, f := range change {
				f(&e, &o)
			}
			if row.Status != "executing" && row.Status != "done" { // as the engine: what cannot be edited has no edit
				o.Edits[id] = e
			}
			got, err := s.db.Operate(ctx, []int64{id}, &o)
			if _, occupied := errors.AsType[*store.OccupiedError](err); occupied {
				err = nil
			}
			s.promoteMissed(got.Missed)
			to := row.Step
			if v == store.Rewind {
				to = e.To
			}
			s.facts.edits(s.name, id, v, row.Version, row.Visit, row.Step, e.Old, e.New, row.Version, to, len(got.Changed) == 1)
			return err
		}
		s.insist(name, once(ctx), once)
	}}
}

// marked is a state that only one verb of one session writes.
func marked(session, verb string) []byte {
	return []byte(`{"by": ` + strconv.Quote(session+" "+verb) + `}`)
}

// asItIs leaves the state.
func asItIs(e *store.Edit, _ *store.Order) { e.New = e.Old }

func newKeys(_ *store.Edit, o *store.Order) { o.NewKeys = true }

// moves brings an instance to version 2, as a page of an eager migration does.
func moves(name string, id int64, on things, leave bool) verb {
	return verb{name: name, family: "edit", touches: on, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			found, err := s.db.Unmoved(ctx, []int64{id}, "m", 1)
			if err != nil || len(found) == 0 {
				return err
			}
			one := store.Moved{Unmoved: found[0], Step: "t", State: marked(s.name, name)}
			if leave {
				one.State = found[0].State
			}
			n, refused, err := s.db.Move(ctx, "m", 1, 2, []store.Moved{one}, store.By{Actor: s.name})
			if len(refused) > 0 {
				s.fault("rows that cannot be migrated: %v", refused)
			}
			s.facts.edits(s.name, id, store.Migrate, 1, nil, found[0].Step, found[0].State, one.State, 2, one.Step, n == 1)
			return err
		}
		s.insist(name, once(ctx), once)
	}}
}

// setsAside gives a claim back as one whose step its worker does not know, or whose state it cannot
// convert.
func setsAside(name, fault string, c *step.Claim) verb {
	return verb{name: name, family: "set aside", touches: subject | key, run: func(ctx context.Context, s *session) {
		s.facts.holds(s.name, owner, c)
		once := func(ctx context.Context) error {
			done, err := s.db.SetAside(ctx, owner, []store.Aside{{Claim: c, Fault: fault}})
			if len(done.Refused) > 0 {
				s.fault("claims that cannot be given back: %v", done.Refused)
			}
			s.promoteMissed(done.Missed)
			return locked(done, err)
		}
		s.insist(name, once(ctx), once)
	}}
}

// recalls claims strays, as a worker that knows their step.
func recalls(name, worker string) verb {
	return verb{name: name, family: "set aside", touches: subject | key | second, turns: 6, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			got, err := s.db.ClaimStrays(ctx, store.ClaimParams{Queue: "default", Worker: worker, Machines: []string{"m/1"}, Limit: 10, Window: 100,
				Lease: time.Minute}, []store.StepKey{{Machine: "m", Version: 1, Step: "s"}})
			if len(got.Refused) > 0 {
				s.fault("strays that cannot be claimed: %v", got.Refused)
			}
			if err == nil {
				s.facts.claims(s.name, worker, got.Claims)
				s.promoteMissed(got.Unsettled)
			}
			return err
		}
		s.insist("recall", once(ctx), once)
	}}
}

// claimsNext claims, and goes on with the subject.
func claimsNext(name string) verb {
	v := claims(name, "default", owner, 10)
	v.run = func(ctx context.Context, s *session) {
		for _, c := range s.claim(ctx, "default", owner, 10) {
			if c.ID == subjectID {
				s.commit(ctx, owner, []store.Entry{next(c)}, false)
			}
		}
	}
	return v
}

// converted returns the entry of a claim that was converted to version 2.
func converted(c *step.Claim) store.Entry {
	own := *c
	own.Migrated, own.Version = 1, 2
	e := next(&own)
	e.Commit.Version, e.Commit.State = 2, json.RawMessage(`{"converted": 2}`)
	return e
}

// edits notes an edit, a rewind or a migration, and whether it was told to have changed its
// instance.
func (f *facts) edits(actor string, id int64, verb store.Verb, version int, visit any, at string, was, is []byte, to int, toStep string, told bool) {
	f.edited = append(f.edited, []any{actor, id, string(verb), version, visit, at, string(was), string(is), to, toStep, told})
}

// versioned returns the worlds of this file.
func versioned() []world {
	// The audit of a schedule is compared with the answers of its verbs.
	fresh := []string{`DELETE FROM gendurable.history`}
	changed := func(v verb) bool { return v.family == "edit" }
	asleep := overdue(append(fresh, parked, row(subjectID, with(with(ofParent, addressed...), "status", "'awaiting_signal'", "awaits", "'{go,stop}'",
		"await_deadline", "now() - interval '1 s'")...), sibling, follower("0", "0"), row(freedID, "status", "'failed'", "failure", "'error'", "finished_at", "now() - interval '2 h'", "visit", "3", "correlation_key", "'v'",
		"correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children}'")), subjectID)
	ready := overdue(append(fresh, parked, row(subjectID, with(with(ofParent, addressed...), "awaits", "'{go}'", "claim_token", "11")...), sibling,
		follower("1", "0"), inbox[0]), subjectID)
	aside := append(fresh, row(subjectID, with(with(expired, addressed...), "awaits", "'{go}'", "claim_token", "11")...),
		"UPDATE gendurable.gen_durable SET depth = 0", follower("1", "1"), inbox[0],
		row(strayID, "pick_lane", "4", "aside_step", "'s'", "eligible_at", "now() - interval '3 s'"))
	late := orphaned()
	late.Token = 10
	mends := []verb{
		edits("edit", store.Edits, subjectID, subject), edits("rewind", store.Rewind, subjectID, subject),
		edits("rewind, as it is", store.Rewind, subjectID, subject, asItIs),
		moves("migrate", subjectID, subject, false), moves("migrate, state left", subjectID, subject, true),
	}
	return []world{
		{name: "edited asleep", setup: asleep, only: changed, verbs: join(mends, []verb{
			edits("edit, new keys", store.Edits, subjectID, subject, newKeys),
			edits("edit parent", store.Edits, parentID, parent), edits("rewind parent", store.Rewind, parentID, parent), moves("migrate parent", parentID, parent, false),
			delivers("signal go", byID(subjectID), "go", ""), delivers("signal go by key", byKey("x"), "go", ""), timesOut(), expires(),
			claims("claim", "default", owner, 10), inTurn("time out, claim", timesOut(), claims("", "default", owner, 10)),
			cancels("cancel", subjectID), cancels("cancel parent", parentID), edits("rewind failed", store.Rewind, freedID, second),
			renamed("insert, free key", second, inserts("", spec("v", ""))), renamed("retry failed", second, revives("", freedID)),
			operates("pause", store.Pause, subjectID), commits("sibling done", false, done(siblingClaim)), commits("sibling done, slow", true, done(siblingClaim)),
			holds("hold", subject, subjectID), refers(subject, subjectID), inserts("insert, same key", spec("x", "")),
		})},
		{name: "edited runnable", setup: ready, only: changed, verbs: join(mends, zombies()[:3], []verb{
			claims("claim", "default", owner, 10), clears("clear", "default", "w2", 10), claimsNext("claim, next"), promotes(), sweeps(), expires(),
			delivers("signal go", byID(subjectID), "go", ""), cancels("cancel", subjectID), operates("reschedule, late", store.Reschedule, subjectID, later),
			inTurn("pause, resume", operates("", store.Pause, subjectID), operates("", store.Resume, subjectID)), holds("hold", subject, subjectID),
			inserts("insert, more urgent", urgent(spec("", "k"))),
		})},
		{name: "strays", setup: append(aside, inbox[1:]...), only: func(v verb) bool { return v.family == "set aside" || v.family == "edit" }, verbs: []verb{
			setsAside("set aside", "", orphanClaim), setsAside("set aside, faulty", "cannot become version 2", orphanClaim), setsAside("zombie: set aside", "", late),
			recalls("recall", "w2"), recalls("recall again", "w3"), inTurn("set aside, recall", setsAside("", "", orphanClaim), recalls("", "w2")),
			commits("next", false, next(orphanClaim)), commits("next, converted", false, converted(orphanClaim)), commits("done", false, done(orphanClaim)),
			commits("retry", false, entry(orphanClaim, step.Commit{Kind: step.Retry, Step: "s"})), commits("park", false, awaits(orphanClaim, "t", "stop")),
			beats("beat", orphanClaim), releases("release", orphanClaim), reaps("reap", 0), claims("claim", "default", "w2", 10), promotes(),
			delivers("signal go", byID(subjectID), "go", ""), cancels("cancel", subjectID), operates("pause", store.Pause, subjectID),
			renamed("cancel stray", second, cancels("", strayID)), renamed("pause stray", second, operates("", store.Pause, strayID)),
			renamed("pause, resume stray", second, inTurn("", operates("", store.Pause, strayID), operates("", store.Resume, strayID))),
			edits("edit stray", store.Edits, strayID, second), edits("rewind stray", store.Rewind, strayID, second), moves("migrate stray", strayID, second, false),
			moves("migrate", subjectID, subject, false), edits("edit", store.Edits, subjectID, subject),
			holds("hold", subject, subjectID), holds("hold stray", second, strayID),
		}},
	}
}

// renamed is a verb on other things than the subject.
func renamed(name string, on things, v verb) verb {
	v.name, v.touches = name, on
	return v
}
