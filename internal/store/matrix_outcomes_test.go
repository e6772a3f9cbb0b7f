package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Several transitions share these parts.
var (
	progress = rules{"step": given("there"), "state": given(`{"state": "new"}`), "visit": plusOne, "attempt": is("0"), "crashes": is("0"),
		"awaits": null, "timed_out": is("false"), "last_error": null, "commit_id": mark, "updated_at": now}
	claimEnds = rules{"locked_by": null, "lease_expires_at": null, "gate": null, "place": null, "seat": null, itsNext: promoted}
	retried   = rules{"status": is("runnable"), "attempt": plusOne, "eligible_at": in("now + delay", time.Minute), "commit_id": mark, "updated_at": now}
	parked    = rules{"status": is("awaiting_signal"), "awaits": given(`["never"]`)}
	awake     = rules{"status": is("runnable"), "eligible_at": now}
	ended     = rules{"finished_at": now, "commit_id": mark, "updated_at": now, "joined": mark, itsBarrier: joined,
		"correlation_guard": null.as("NULL, if out of scope")}
	outcomeCrash = rule{"+1: crash", func(s *scene, was, is *string) bool { // of a claim that was lost before; the earlier entry names the worker
		r := remembers("crash", "again")
		if is == nil {
			return false
		}
		withWorker := strings.TrimSuffix(*is, "}]") + `, "worker": "` + me + `"}]`
		return r.holds(s, was, &withWorker)
	}}
	spawn = rules{"status": is("awaiting_children"), "round": of("the new visit", func(*scene) string { return "12" }), "dropped": null,
		itsInbox: consumed}
)

// policed has the columns of a join's policy, for three children.
var policed = rules{"join_round": of("the new visit", func(*scene) string { return "12" }), "join_size": shown("number inserted", "3"),
	"join_done": is("0"), "join_failed": is("0")}

// rejoined has the columns of a Rejoin of a round of so many children, of which some are done and
// some have failed.
func rejoined(size, done, failed int) rules {
	return rules{"join_round": of("the new visit", func(*scene) string { return "12" }), "join_size": shown("children of the round", number(size)),
		"join_done": shown("of them", number(done)), "join_failed": shown("of them", number(failed)), "children_pending": shown("those that are left", number(size-done-failed)),
		"wake_done": null, "wake_failed": null, "wake_ended": null, "losers": shown("its round, as due", "[-9]"),
		"stream_most": null, itsInbox: consumed}
}

// halfEnded gives the instance four children of its round: one is done, and one has failed.
func halfEnded(s *scene) {
	for _, how := range []columns{{}, {}, {"status": `'done'`}, {"status": `'failed'`, "failure": `'error'`}} {
		if len(how) > 0 {
			how = how.with(columns{"finished_at": `now()`, "joined": `gen_random_uuid()`})
		}
		s.insert(columns{"fsm": `'kid'`, "step": `'s'`, "queue": `'kids'`, "parent_id": number(s.id), "parent_round": `9`}.with(how))
	}
}

func joining(j step.Join) func(*step.Commit) { return func(c *step.Commit) { c.Join = &j } }

// to makes an outcome that leads to another step.
func to(kind step.Kind, change ...func(*step.Commit)) func(*scene) *step.Commit {
	return func(*scene) *step.Commit {
		c := &step.Commit{Kind: kind, Step: "there", State: json.RawMessage(`{"state": "new"}`)}
		for _, f := range change {
			f(c)
		}
		return c
	}
}

func newer(c *step.Commit) { c.Version = 4 }

func awaiting(names ...string) func(*step.Commit) { return func(c *step.Commit) { c.Names = names } }
func hither(c *step.Commit)                       { c.Step = "here" }
func atTime(t time.Time) func(*step.Commit)       { return func(c *step.Commit) { c.At = t } }

func just(c step.Commit) func(*scene) *step.Commit { return func(*scene) *step.Commit { return &c } }

var outcomes = []group{
	{"Next, Retry and Again", "", []transition{
		{name: "Next, claim kept", from: "executing", keep: true, outcome: to(step.Next),
			makes: all(progress, rules{itsInbox: consumed})},
		{name: "Next, released", from: "executing", outcome: to(step.Next),
			makes: all(progress, claimEnds, awake, rules{itsInbox: consumed})},
		{name: "Next with a delay", from: "executing", outcome: to(step.Next, func(c *step.Commit) { c.Delay = time.Hour }),
			makes: all(progress, claimEnds, awake, rules{"eligible_at": in("now + delay", time.Hour), itsInbox: consumed})},
		{name: "Next at a time", from: "executing", outcome: to(step.Next, atTime(tomorrow)),
			makes: all(progress, claimEnds, awake, rules{"eligible_at": at("that time, or now", tomorrow), itsInbox: consumed})},
		{name: "Next at a time past", from: "executing", outcome: to(step.Next, atTime(tomorrow.AddDate(-1, 0, 0))),
			makes: all(progress, claimEnds, awake, rules{itsInbox: consumed})},
		{name: "Retry with an error", from: "executing",
			outcome: just(step.Commit{Kind: step.Retry, State: json.RawMessage(`{"state": "new"}`), Delay: time.Minute, Err: "new error"}),
			makes: all(retried, claimEnds, rules{"state": given(`{"state": "new"}`), "last_error": is("new error").as("the error"),
				"errors": remembers("retry", "new error")})},
		{name: "Retry without one", from: "executing", outcome: just(step.Commit{Kind: step.Retry, Delay: time.Minute}),
			makes: all(retried, claimEnds)},
		{name: "Again", from: "executing", outcome: just(step.Commit{Kind: step.Again, Delay: time.Minute}),
			makes: all(retried, claimEnds, rules{"attempt": unchanged})},
		{name: "Again with a state", from: "executing",
			outcome: just(step.Commit{Kind: step.Again, State: json.RawMessage(`{"state": "new"}`), Delay: time.Minute}),
			makes:   all(retried, claimEnds, rules{"attempt": unchanged, "state": given(`{"state": "new"}`)})},
	}},
	{"The first outcome of a converted claim", "A migration has brought the instance to a newer version. Other kinds are as without one, with these columns.", []transition{
		{name: "Next", from: "executing", outcome: to(step.Next, newer), makes: all(progress, claimEnds, awake, rules{itsInbox: consumed, "fsm_version": is("4")})},
		{name: "Retry", from: "executing", outcome: just(step.Commit{Kind: step.Retry, Version: 4, Step: "there",
			State: json.RawMessage(`{"state": "new"}`), Delay: time.Minute}),
			makes: all(retried, claimEnds, rules{"fsm_version": is("4"), "step": given("there"), "state": given(`{"state": "new"}`)})},
		{name: "Done", from: "executing", outcome: just(step.Commit{Kind: step.Done, Version: 4, Step: "there",
			State: json.RawMessage(`{"state": "new"}`), Result: json.RawMessage(`{"result": "new"}`)}),
			makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null, "timed_out": is("false"),
				"last_error": null, itsInbox: emptied, "fsm_version": is("4"), "step": given("there"), "state": given(`{"state": "new"}`)})},
	}},
	{"Await", "A re-check in the same transaction wakes an instance that has parked although a signal that it awaits is there already.", []transition{
		{name: "nothing there", from: "executing", outcome: to(step.Await, awaiting("never")),
			makes: all(progress, claimEnds, parked)},
		{name: "with a timeout", from: "executing",
			outcome: to(step.Await, awaiting("never"), func(c *step.Commit) { c.Timeout = 2 * time.Hour }),
			makes:   all(progress, claimEnds, parked, rules{"await_deadline": in("now + timeout", 2*time.Hour)})},
		{name: "until a time", from: "executing", outcome: to(step.Await, awaiting("never"), atTime(tomorrow)),
			makes: all(progress, claimEnds, parked, rules{"await_deadline": at("that time", tomorrow)})},
		{name: "a match is there", from: "executing",
			outcome: to(step.Await, awaiting("go"), func(c *step.Commit) { c.Timeout = 2 * time.Hour }),
			makes:   all(progress, claimEnds, awake, rules{"awaits": given(`["go"]`)})},
		{name: "towards itself, only what it was given is there", from: "executing", outcome: to(step.Await, awaiting("go"), hither),
			makes: all(progress, claimEnds, parked, rules{"step": given("here"), "awaits": given(`["go"]`)})},
		{name: "towards itself, something new is there", from: "executing", outcome: to(step.Await, awaiting("late", "go"), hither),
			makes: all(progress, claimEnds, awake, rules{"step": given("here"), "awaits": given(`["late", "go"]`)})},
	}},
	{"ScheduleChildren and Rejoin", "Children whose correlation key is occupied are not inserted. Of the four of a Rejoin one is done and one has failed," +
		" which its step has seen; they are counted anew.", []transition{
		{name: "some", from: "executing",
			outcome: func(s *scene) *step.Commit { return to(step.Children, spawning(s.nChildren(3)))(s) },
			makes:   all(progress, claimEnds, spawn, rules{"children_pending": shown("number inserted", "3"), itsChildren: spawned(3)})},
		{name: "some not inserted", from: "executing", prepare: occupy,
			outcome: func(s *scene) *step.Commit {
				return to(step.Children, spawning(withKeys(s.nChildren(3), "", s.taken(), "")))(s)
			},
			makes: all(progress, claimEnds, spawn, rules{"children_pending": shown("number inserted", "2"), itsChildren: spawned(2),
				"dropped": of("those not inserted", func(s *scene) string { return s.droppedAt(1) })})},
		{name: "none inserted", from: "executing", prepare: occupy,
			outcome: func(s *scene) *step.Commit {
				return to(step.Children, spawning(withKeys(s.nChildren(1), s.taken())))(s)
			},
			makes: all(progress, claimEnds, spawn, awake, rules{"children_pending": is("0"),
				"dropped": of("those not inserted", func(s *scene) string { return s.droppedAt(0) })})},
		{name: "none given", from: "executing", outcome: to(step.Children),
			makes: all(progress, claimEnds, spawn, awake, rules{"children_pending": is("0")})},
		{name: "some, under a policy", from: "executing",
			outcome: func(s *scene) *step.Commit {
				return to(step.Children, spawning(s.nChildren(3)), joining(step.Join{Done: 2, Failed: 1, Timeout: 2 * time.Hour, Names: []string{"never"}}))(s)
			},
			makes: all(progress, claimEnds, spawn, policed, rules{"children_pending": shown("number inserted", "3"), itsChildren: spawned(3),
				"wake_done": given("2"), "wake_failed": given("1"), "wake_ended": null, "awaits": given(`["never"]`),
				"await_deadline": in("now + timeout", 2*time.Hour)})},
		{name: "the rest is cancelled", from: "executing", outcome: func(s *scene) *step.Commit {
			return to(step.Children, spawning(s.nChildren(3)), joining(step.Join{Cancel: true}))(s)
		},
			makes: all(progress, claimEnds, spawn, policed, rules{"children_pending": shown("number inserted", "3"), itsChildren: spawned(3),
				"wake_done": null, "wake_failed": null, "wake_ended": null, "losers": shown("the new round, too", "[9, 12]")})},
		{name: "as the nodes of a graph", from: "executing", outcome: func(s *scene) *step.Commit {
			c := to(step.Children, spawning(s.nChildren(1)))(s)
			c.Graph = &step.Graph{Nodes: []string{"n"}}
			return c
		},
			makes: all(progress, claimEnds, spawn, policed, rules{"children_pending": shown("number inserted", "1"), "join_size": shown("number inserted", "1"),
				itsChildren: spawned(1), "wake_done": null, "wake_failed": null, "wake_ended": null, "graphs": shown("the new round", "[12]")})},
		{name: "until a time, a signal is there", from: "executing",
			outcome: func(s *scene) *step.Commit {
				return to(step.Children, spawning(s.nChildren(3)), joining(step.Join{Ended: 1, At: tomorrow, Names: []string{"late"}}))(s)
			},
			makes: all(progress, claimEnds, spawn, policed, awake, rules{"children_pending": shown("number inserted", "3"), itsChildren: spawned(3),
				"wake_done": null, "wake_failed": null, "wake_ended": given("1"), "awaits": given(`["late"]`)})},
		{name: "a stream", from: "executing",
			outcome: func(s *scene) *step.Commit {
				return to(step.Children, spawning(s.nChildren(3)), joining(step.Join{Ended: 1, Stream: 5}))(s)
			},
			makes: all(progress, claimEnds, spawn, policed, rules{"children_pending": shown("number inserted", "3"), itsChildren: spawned(3),
				"wake_done": null, "wake_failed": null, "wake_ended": given("1"), "stream_most": given("5"),
				"round": of("minus the new visit", func(*scene) string { return "-12" })})},
		{name: "too few for the policy are inserted", from: "executing", prepare: occupy,
			outcome: func(s *scene) *step.Commit {
				return to(step.Children, spawning(withKeys(s.nChildren(3), "", s.taken(), "")), joining(step.Join{Done: 3, Timeout: time.Hour}))(s)
			},
			makes: all(progress, claimEnds, spawn, policed, awake, rules{"children_pending": shown("number inserted", "2"), itsChildren: spawned(2),
				"join_size": shown("number inserted", "2"), "wake_done": given("3"), "wake_failed": null, "wake_ended": null,
				"dropped": of("those not inserted", func(s *scene) string { return s.droppedAt(1) })})},
		{name: "Rejoin, none of the round are left", from: "executing", outcome: to(step.Rejoin, joining(step.Join{Failed: 1, Timeout: time.Hour})),
			makes: all(progress, claimEnds, awake, rejoined(0, 0, 0), rules{"wake_failed": shown("those that have failed, + given", "1")})},
		{name: "Rejoin, some are left", from: "executing", prepare: halfEnded, outcome: to(step.Rejoin, joining(step.Join{
			Ended: 1, Timeout: 2 * time.Hour, Names: []string{"never"}, Seen: &step.Seen{Done: 1, Failed: 1}})),
			makes: all(progress, claimEnds, rejoined(4, 1, 1), rules{"status": is("awaiting_children"), "wake_ended": shown("those that have ended, + given", "3"),
				"awaits": given(`["never"]`), "await_deadline": in("now + timeout", 2*time.Hour)})},
		{name: "Rejoin, one has ended unseen", from: "executing", prepare: halfEnded,
			outcome: to(step.Rejoin, joining(step.Join{Ended: 1, Seen: &step.Seen{Failed: 1}})),
			makes:   all(progress, claimEnds, awake, rejoined(4, 1, 1), rules{"wake_ended": shown("those that it has seen, + given", "2")})},
		{name: "Rejoin, a stream", from: "executing", prepare: halfEnded, outcome: to(step.Rejoin, joining(step.Join{Ended: 1, Stream: 5})),
			makes: all(progress, claimEnds, awake, rejoined(4, 1, 1), rules{"wake_ended": shown("those that were shown, + given", "1"), "stream_most": given("5")})},
		{name: "Rejoin, too few are left for the policy", from: "executing", prepare: halfEnded,
			outcome: to(step.Rejoin, joining(step.Join{Done: 3, Seen: &step.Seen{Done: 1, Failed: 1}})),
			makes:   all(progress, claimEnds, awake, rejoined(4, 1, 1), rules{"wake_done": shown("those that are done, + given", "4")})},
	}},
	{"Done and Fail", "A child settles its parent's join in the same transaction, once, and only in the parent's current round.",
		[]transition{
			{name: "Done", from: "executing", outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`)}),
				makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null,
					"timed_out": is("false"), "last_error": null, itsInbox: emptied})},
			{name: "Done, child of an older round", from: "executing", with: columns{"parent_round": `5`},
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`)}),
				makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null,
					"timed_out": is("false"), "last_error": null, itsInbox: emptied, itsBarrier: unchanged})},
			{name: "Done, joined before", from: "executing", with: columns{"joined": `gen_random_uuid()`},
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`)}),
				makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null,
					"timed_out": is("false"), "last_error": null, itsInbox: emptied, itsBarrier: unchanged, "joined": unchanged})},
			{name: "Fail", from: "executing", outcome: just(step.Commit{Kind: step.Fail, Err: "new error", Failure: "decided"}),
				makes: all(claimEnds, ended, rules{"status": is("failed"), "failure": given("decided"),
					"last_error": is("new error").as("the reason"), "errors": remembers("fail", "new error")})},
			{name: "Done, unless what does not wait", from: "executing",
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`),
					Unless: &step.Unless{Names: []string{"never", "go"}, Step: "there"}}),
				makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null,
					"timed_out": is("false"), "last_error": null, itsInbox: emptied})},
			{name: "Done, unless what waits", from: "executing",
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`),
					Unless: &step.Unless{Names: []string{"late", "go"}, Step: "there", State: json.RawMessage(`{"state": "new"}`)}}),
				makes: all(progress, claimEnds, awake, rules{"awaits": given(`["late", "go"]`), "result": null, itsInbox: consumed})},
			{name: "Fail, unless what waits", from: "executing",
				outcome: just(step.Commit{Kind: step.Fail, Err: "new error", Failure: "decided",
					Unless: &step.Unless{Names: []string{"late"}, Step: "there"}}),
				makes: all(progress, claimEnds, awake, rules{"state": unchanged, "awaits": given(`["late"]`), "result": null, itsInbox: consumed})},
			{name: "Fail over the deadline", from: "executing", outcome: just(step.Commit{Kind: step.Fail, Err: "too late", Failure: "deadline"}),
				makes: all(claimEnds, ended, rules{"status": is("failed"), "failure": given("deadline"),
					"last_error": is("too late").as("the reason"), "errors": remembers("deadline", "too late")})},
			{name: "Fail over the crash limit", from: "executing", outcome: just(step.Commit{Kind: step.Fail, Err: "again", Failure: "crashes"}),
				makes: all(claimEnds, ended, rules{"status": is("failed"), "failure": given("crashes"),
					"last_error": is("again").as("the reason"), "errors": outcomeCrash})},
		}},
	{"Done and Fail of what is not to be kept", "With `fsm.RetainNone`, the row goes in the transaction of its Done, with all columns and its inbox. " +
		"A child stays for its parent, and who has had children stays for theirs, until the GC collects them.",
		[]transition{
			{name: "Done", from: "executing", with: nobodys, drop: true,
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`)}), makes: deleted()},
			{name: "Done of a child", from: "executing", with: columns{"round": `0`}, drop: true,
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`)}),
				makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null,
					"timed_out": is("false"), "last_error": null, itsInbox: emptied})},
			{name: "Done of who has had children", from: "executing", with: columns{"parent_id": null.text}, drop: true,
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`)}),
				makes: all(claimEnds, ended, rules{"status": is("done"), "result": given(`{"result": "new"}`), "awaits": null,
					"timed_out": is("false"), "last_error": null, "joined": unchanged, itsInbox: emptied, itsBarrier: unchanged})},
			{name: "Done, unless what waits", from: "executing", with: nobodys, drop: true,
				outcome: just(step.Commit{Kind: step.Done, Result: json.RawMessage(`{"result": "new"}`),
					Unless: &step.Unless{Names: []string{"late", "go"}, Step: "there", State: json.RawMessage(`{"state": "new"}`)}}),
				makes: all(progress, claimEnds, awake, rules{"awaits": given(`["late", "go"]`), "result": null, itsInbox: consumed})},
			{name: "Fail", from: "executing", with: nobodys, drop: true,
				outcome: just(step.Commit{Kind: step.Fail, Err: "new error", Failure: "decided"}),
				makes: all(claimEnds, ended, rules{"status": is("failed"), "failure": given("decided"), "joined": unchanged, itsBarrier: unchanged,
					"last_error": is("new error").as("the reason"), "errors": remembers("fail", "new error")})},
		}},
}

// nobodys is a row without a parent and children.
var nobodys = columns{"parent_id": null.text, "round": `0`, "children_pending": `0`}

// deleted requires that the row is there no more.
func deleted() rules {
	gone := rule{unchanged.text, null.holds}
	out := rules{itsInbox: emptied, itsNext: promoted}
	for _, name := range known {
		out[name] = gone
	}
	out["id"] = null.as("deleted")
	return out
}

func spawning(specs []step.Spec) func(*step.Commit) { return func(c *step.Commit) { c.Spawn = specs } }

// occupy makes another instance occupy the key s.taken().
func occupy(s *scene) {
	s.insert(columns{"fsm": `'m'`, "step": `'s'`, "queue": quote(s.queue()), "paused": `true`, "correlation_key": quote(s.taken()),
		"correlation_scope": liveScope})
}

func (s *scene) taken() string { return fmt.Sprint("taken", s.number) }

func (s *scene) droppedAt(index int) string {
	return fmt.Sprintf(`[{"i": %d, "k": %q, "o": %d}]`, index, s.taken(),
		s.bench.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = $1`, s.taken()))
}
