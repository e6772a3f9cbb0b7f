package interleave

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// world is a handful of rows and the verbs that meet on them.
type world struct {
	name      string
	setup     []string
	verbs     []verb
	claimable bool            // the subject is runnable, so a claim finds something
	heeds     bool            // workers heed gates here
	rests     bool            // after a schedule, children are cancelled that no join waits for any more
	looks     bool            // processes that look for kept signals know of none as a schedule begins
	recorded  bool            // the history keeps the transitions of all instances
	only      func(verb) bool // if not nil, only pairs with such a verb run here: another world has the others
}

// owner is the worker that holds the claims of a world, and that claims again. So a fence by worker
// alone does not suffice.
const owner = "00000000-0000-0000-0000-0000000000aa"

// These are the rows of all worlds. The parent's id is the lowest, since all waiters lock in
// ascending order.
const (
	parentID   = 1
	subjectID  = 2
	siblingID  = 3
	followerID = 4 // waits behind the subject's partition key
	strangerID = 5 // a child of a round that is over
	secondID   = 6 // another parent
	nephewID   = 7 // its child, as is the next id
	freedID    = 8 // failed, its key is free
	abroadID   = 9 // waits behind the subject's partition key in another queue
)

func row(id int64, columns ...string) string {
	names, values := []string{"id", "fsm", "step"}, []string{strconv.FormatInt(id, 10), "'m'", "'s'"}
	for i := 0; i < len(columns); i += 2 {
		names, values = append(names, columns[i]), append(values, columns[i+1])
	}
	return fmt.Sprintf(`INSERT INTO gendurable.gen_durable (%s) OVERRIDING SYSTEM VALUE VALUES (%s)`,
		strings.Join(names, ", "), strings.Join(values, ", "))
}

func with(columns []string, more ...string) []string {
	return append(append([]string{}, columns...), more...)
}

func signal(id, target int64, name, dedup string) string {
	return fmt.Sprintf(`INSERT INTO gendurable.signals (id, target_id, name, dedup_key) OVERRIDING SYSTEM VALUE VALUES (%d, %d, '%s', nullif('%s', ''))`,
		id, target, name, dedup)
}

var (
	executing = []string{"status", "'executing'", "locked_by", "'" + owner + "'", "lease_expires_at", "now() + interval '30 s'"}
	expired   = []string{"status", "'executing'", "locked_by", "'" + owner + "'", "lease_expires_at", "now() - interval '1 s'"}
	addressed = []string{"partition_key", "'k'", "correlation_key", "'x'",
		"correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children}'", "visit", "3", "depth", "1",
		"eligible_at", "now() - interval '10 s'"}
	ofParent = []string{"parent_id", "1", "parent_round", "1"}
	parked   = row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "2")
	sibling  = row(siblingID, with(with(executing, ofParent...), "claim_token", "12", "visit", "1", "depth", "1")...)
	inbox    = []string{signal(21, subjectID, "go", ""), signal(22, subjectID, "go", "d"), signal(23, subjectID, "noise", "")}
)

// follower inserts the next rows of the subject's partition key, in its queue and in another. The
// order of a key is per queue, and its exclusion across queues.
func follower(lane, abroad string) string {
	return fmt.Sprintf(`INSERT INTO gendurable.gen_durable (id, fsm, step, partition_key, pick_lane, eligible_at, queue) OVERRIDING SYSTEM VALUE
		VALUES (%d, 'm', 's', 'k', %s, now() - interval '5 s', 'default'), (%d, 'm', 's', 'k', %s, now() - interval '4 s', 'other')`,
		followerID, lane, abroadID, abroad)
}

// These are the claims of the rows above, in the form that the worker that made them has.
var (
	subjectClaim = &step.Claim{ID: subjectID, Token: 11, Visit: 3, Step: "s", Queue: "default", PartitionKey: "k", CorrelationKey: "x",
		Parent: parentID, ParentRound: 1, Depth: 1,
		Awaited: []step.Signal{{ID: 21, Name: "go"}, {ID: 22, Name: "go", DedupKey: "d"}}}
	orphanClaim    = orphaned()
	successorClaim = successor()
	siblingClaim   = &step.Claim{ID: siblingID, Token: 12, Visit: 1, Step: "s", Queue: "default", Parent: parentID, ParentRound: 1, Depth: 1}
)

// orphaned returns the subject's claim without a parent, whose end is the matter of another
// statement.
func orphaned() *step.Claim {
	c := *subjectClaim
	c.Parent, c.ParentRound, c.Depth = 0, 0, 0
	return &c
}

func successor() *step.Claim {
	c := *subjectClaim
	c.Token = 13
	return &c
}

func entry(c *step.Claim, o step.Commit) store.Entry {
	if o.Kind != step.Done && o.Kind != step.Fail {
		o.State = json.RawMessage(`{}`)
	}
	return store.Entry{Claim: c, Commit: &o}
}

func kept(c *step.Claim) store.Entry {
	e := entry(c, step.Commit{Kind: step.Next, Step: "t"})
	e.Keep = true
	return e
}

func done(c *step.Claim) store.Entry {
	return entry(c, step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)})
}

func stopped(c *step.Claim) store.Entry {
	return entry(c, step.Commit{Kind: step.Fail, Failure: "decided", Err: "no"})
}

// unless lets the instance of an ending outcome go on if a signal waits.
func unless(e store.Entry, name string) store.Entry {
	e.Commit.Unless = &step.Unless{Names: []string{name}, Step: "t"}
	return e
}

func next(c *step.Claim) store.Entry { return entry(c, step.Commit{Kind: step.Next, Step: "t"}) }

func awaits(c *step.Claim, to string, names ...string) store.Entry {
	return entry(c, step.Commit{Kind: step.Await, Step: to, Names: names})
}

func spec(correlation, partition string) step.Spec {
	return step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "s", Queue: "default", State: json.RawMessage(`{}`), Key: correlation, PartitionKey: partition}
}

func spawns(c *step.Claim, children ...step.Spec) store.Entry {
	return entry(c, step.Commit{Kind: step.Children, Step: "t", Spawn: children})
}

// again returns the claim after a kept Next.
func again(c *step.Claim) *step.Claim {
	d := *c
	d.Visit, d.Step, d.Awaited = c.Visit+1, "t", nil
	return &d
}

func byID(id int64) store.Address    { return store.Address{ID: id} }
func byKey(key string) store.Address { return store.Address{Key: key} }

func sole(v verb) verb {
	v.sole = true
	return v
}

// outcomes returns outcomes of each kind for the subject's claim.
func outcomes(c *step.Claim) []verb {
	delayed := entry(c, step.Commit{Kind: step.Next, Step: "t", Delay: time.Hour})
	retry := entry(c, step.Commit{Kind: step.Retry, Step: "s", Delay: time.Hour, Err: "again"})
	due := awaits(c, "t", "stop")
	due.Commit.At = time.Unix(1, 0)
	return []verb{
		commits("next, kept", false, kept(c)),
		sole(inTurn("next, kept twice", commits("", false, kept(c)), commits("", false, kept(again(c))))),
		commits("next", false, next(c)),
		sole(commits("next, delayed", false, delayed)),
		sole(commits("retry", false, retry)),
		sole(commits("again", false, entry(c, step.Commit{Kind: step.Again, Delay: time.Hour}))),
		sole(commits("park at itself", false, awaits(c, "s", "go", "stop"))),
		sole(commits("park, a signal is there", false, awaits(c, "t", "go"))),
		sole(commits("park, over at once", false, due)),
		commits("spawn", false, spawns(c, spec("", "k"), spec("", "k"), spec("", ""))),
		sole(commits("spawn nothing", false, spawns(c))),
		sole(commits("spawn, keyed", true, spawns(c, spec("c1", ""), spec("c2", "k")))),
		sole(commits("spawn until a signal", false, policed(spawns(c, spec("", "k"), spec("", "")), step.Join{Ended: 2, Names: []string{"stop"}}))),
		sole(commits("spawn, keyed, a quorum", true, policed(spawns(c, spec("c1", ""), spec("c2", "k")), step.Join{Done: 2, Timeout: time.Hour}))),
		commits("done", false, done(c)),
		sole(commits("stop", false, stopped(c))),
		sole(commits("done, unless", false, unless(done(c), "stop"))),
		sole(commits("done, unless, slow", true, unless(done(c), "stop"))),
		sole(commits("stop, unless", false, unless(stopped(c), "stop"))),
		sole(transacts("own: done, unless", unless(done(c), "stop"))),
		sole(commits("park, slow", true, awaits(c, "t", "stop"))),
		sole(commits("done, slow", true, done(c))),
		sole(commits("batch: done, done", false, done(c), done(siblingClaim))),
		sole(commits("batch: next, done", false, next(c), done(siblingClaim))),
		sole(commits("batch: done, kept, slow", true, done(c), kept(siblingClaim))),
		sole(transacts("own: next", next(c))),
		sole(transacts("own: next, kept", kept(c))),
		sole(transacts("own: park, a signal is there", awaits(c, "t", "go"))),
		sole(transacts("own: spawn, keyed", spawns(c, spec("c1", ""), spec("c2", "k")))),
		sole(transacts("own: done", done(c))),
	}
}

func worlds() []world {
	family := []string{parked, row(subjectID, with(with(with(executing, ofParent...), addressed...), "awaits", "'{go}'", "claim_token", "11")...), sibling, follower("1", "1")}
	lost := []string{parked, row(subjectID, with(with(with(expired, ofParent...), addressed...), "awaits", "'{go}'", "claim_token", "11")...), sibling, follower("1", "1")}
	crashed := []string{parked, row(subjectID, with(with(with(expired, ofParent...), addressed...), "awaits", "'{go}'", "claim_token", "11", "crashes", "1")...), sibling, follower("1", "1")}
	runnable := []string{parked, row(subjectID, with(with(ofParent, addressed...), "awaits", "'{go}'", "claim_token", "11")...), sibling, follower("1", "0")}
	unsettled := append(append([]string{}, runnable[:3]...), follower("0", "0"))
	asleep := []string{parked, row(subjectID, with(with(ofParent, addressed...), "status", "'awaiting_signal'", "awaits", "'{go,stop}'",
		"await_deadline", "now() - interval '1 s'")...), sibling, follower("0", "0"), signal(24, subjectID, "go", "d"), signal(25, subjectID, "go", "e"),
		"UPDATE gendurable.signals SET consumed_at = now() - id * interval '-1 s'"}
	followed := append(append([]string{}, family[:3]...), follower("0", "0"))
	reclaimed := []string{parked, row(subjectID, with(with(with(executing, ofParent...), addressed...), "awaits", "'{go}'", "claim_token", "13")...), sibling, follower("1", "1")}
	orphan := []string{row(parentID, "status", "'awaiting_children'", "visit", "1", "round", "1", "children_pending", "1"),
		row(subjectID, with(with(expired, addressed...), "awaits", "'{go}'", "claim_token", "11")...),
		"UPDATE gendurable.gen_durable SET depth = 0", sibling, follower("1", "1")}
	inserted := []verb{
		inserts("insert, same key", spec("x", "")),
		inserts("insert many", spec("y", "k"), spec("x", "k"), spec("", "k")),
		adds("insert by function", "x"),
	}
	shuffled := []verb{inserts("insert many, reversed", spec("x", ""), spec("y", "")), inserts("insert, child's key", spec("c1", ""))}
	delivered := []verb{
		delivers("signal go", byID(subjectID), "go", ""),
		delivers("signal stop", byID(subjectID), "stop", ""),
		delivers("signal go by key", byKey("x"), "go", ""),
		delivers("signal again", byID(subjectID), "go", "d"),
		deliversMany("signal many", "go", byKey("x"), byID(parentID)),
		arrives("start", "x", "go", ""),
		arrives("start again", "x", "go", "d"),
		signals("signal go by function", byID(subjectID), "go", ""),
		signals("signal again by function and key", byKey("x"), "go", "d"),
	}
	started := []verb{arrives("start, free key", "y", "go", ""), arrives("start, child's key", "c1", "go", "")}
	beside := []verb{cancels("cancel", subjectID), operates("pause", store.Pause, subjectID), holds("hold", subject, subjectID), refers(subject, subjectID)}

	ends := func(v verb) bool { return strings.Contains(v.name, "done") }
	swept := func(v verb) bool { return v.family == "reap" }
	asleepOnly := func(v verb) bool { return v.family != "promote, sweep" }
	return append([]world{
		{name: "executing", setup: overdue(append(family, inbox...), subjectID), verbs: join([]verb{expires()}, outcomes(subjectClaim), delivered, started, beside, inserted, shuffled, []verb{
			beats("beat", subjectClaim), insists("beat alone", subjectClaim), releases("release", subjectClaim),
			claims("claim", "default", owner, 10), clears("clear", "default", "w2", 10), promotes(), sweeps(), timesOut(),
			commits("sibling done", false, done(siblingClaim)), commits("sibling done, slow", true, done(siblingClaim)),
			holds("hold parent", parent, parentID), cancels("cancel parent", parentID), cancelsFamily("cancel family", parentID),
			strays("give strays back", siblingClaim, bystanderClaim), reads(),
			inTurn("pause, resume follower", operates("", store.Pause, followerID), operates("", store.Resume, followerID)),
		})},
		{name: "lost", setup: overdue(append(lost, inbox...), subjectID), only: swept, verbs: join([]verb{expires()}, outcomes(subjectClaim), delivered[:1], beside, inserted, []verb{
			reaps("reap", 0), beats("beat", subjectClaim), releases("release", subjectClaim), claims("claim", "default", owner, 10), promotes(),
			claims("claim by another", "default", "w2", 10), inTurn("reap, claim", reaps("", 0), claims("", "default", owner, 10)),
		})},
		{name: "orphan", setup: append(orphan, inbox...), only: ends, verbs: join(delivered, started, beside, inserted, shuffled, []verb{
			commits("done", false, done(orphanClaim)), sole(commits("done, unless", false, unless(done(orphanClaim), "stop"))), sole(commits("done, slow", true, done(orphanClaim))), sole(transacts("own: done", done(orphanClaim))),
			sole(commits("batch: done, done", false, done(orphanClaim), done(siblingClaim))),
			sole(commits("batch: done, kept", false, done(orphanClaim), kept(siblingClaim))),
			reaps("reap", 0), beats("beat", orphanClaim), releases("release", orphanClaim), claims("claim", "default", owner, 10), promotes(), sweeps(),
			inTurn("reap, claim", reaps("", 0), claims("", "default", owner, 10)),
		})},
		{name: "crashed", setup: append(crashed, inbox...), only: swept, verbs: join(outcomes(subjectClaim), delivered[:1], beside, inserted, []verb{
			reaps("reap to the limit", 1), beats("beat", subjectClaim), releases("release", subjectClaim), claims("claim", "default", owner, 10), promotes(),
			commits("sibling done", false, done(siblingClaim)), holds("hold parent", parent, parentID), cancels("cancel parent", parentID),
		})},
		{name: "followed", setup: append(followed, inbox...), only: func(v verb) bool { return v.family == "claim" }, verbs: join(outcomes(subjectClaim), []verb{
			claims("claim", "default", owner, 10), claims("claim elsewhere", "other", "w2", 10), clears("clear", "default", "w2", 10), clears("clear elsewhere", "other", "w2", 10),
			beats("beat", subjectClaim), holds("hold", subject, subjectID), releases("release", subjectClaim), cancels("cancel", subjectID), operates("pause", store.Pause, subjectID), promotes(), sweeps(), inserted[1],
		})},
		{name: "reclaimed", setup: append(reclaimed, append(inbox, signal(20, subjectID, "stop", ""))...), only: isZombie, verbs: join(zombies(), []verb{
			commits("next", false, next(successorClaim)), commits("retry", false, entry(successorClaim, step.Commit{Kind: step.Retry, Step: "s"})),
			commits("park", false, awaits(successorClaim, "t", "stop")), commits("park at itself", false, awaits(successorClaim, "s", "go", "stop")),
			commits("done", false, done(successorClaim)),
			commits("next, kept", false, kept(successorClaim)), beats("beat", successorClaim), releases("release", successorClaim), delivered[0],
		})},
		{name: "runnable", setup: overdue(append(runnable, inbox...), subjectID), claimable: true, verbs: join([]verb{expires()}, delivered, beside, inserted, zombies()[:3], []verb{
			claims("claim", "default", owner, 10), claims("claim one", "default", "w2", 1), claimsPlainly("claim plainly", "default", "w2", 10), promotes(), sweeps(),
			inserts("insert, more urgent", urgent(spec("", "k"))), commits("sibling done", false, done(siblingClaim)),
			operates("reschedule", store.Reschedule, subjectID), operates("reschedule, late", store.Reschedule, subjectID, later),
			inTurn("pause, resume", operates("", store.Pause, subjectID), operates("", store.Resume, subjectID)),
		})},
		{name: "unsettled", setup: overdue(append(unsettled, inbox...), subjectID), claimable: true, verbs: join([]verb{expires()}, delivered[:1], beside, []verb{
			claims("claim", "default", owner, 10), claimsPlainly("claim plainly", "default", "w2", 10), claims("claim one", "default", "w2", 1), claims("claim elsewhere", "other", "w2", 10),
			clears("clear", "default", "w2", 10), clears("clear elsewhere", "other", "w2", 10), promotes(), sweeps(), inserts("insert, more urgent", urgent(spec("", "k"))),
			inserted[1], operates("reschedule, late", store.Reschedule, subjectID, later),
		})},
		{name: "asleep", setup: overdue(asleep, subjectID), only: asleepOnly, verbs: join([]verb{expires()}, delivered, beside, inserted, []verb{
			timesOut(), claims("claim", "default", owner, 10), promotes(), prunes(),
			inTurn("time out, claim", timesOut(), claims("", "default", owner, 10)),
		})},
		unanswered(overdue(append(family, inbox...), subjectID), append(beside, delivered[0], expires(),
			beats("beat", subjectClaim), releases("release", subjectClaim), claims("claim", "default", owner, 10), promotes(),
			commits("sibling done", false, done(siblingClaim)), holds("hold parent", parent, parentID), cancels("cancel parent", parentID),
			inserts("insert, same key", spec("x", "")))),
		taken("lingering", living), taken("vacant", vacant), families(), quorum(), rest(), left(), rootEnding(), rootEnded(), rejoined(), streaming(), graph(), graphOver(), restarted(), restartedLate(), extended(), graveyard(), scheduled(), fired(), windowed(),
	}, slices.Concat(gatedWorlds(), versioned(), []world{keeping(), looking(), dropping(), unkept(), recorded(), enteredWorld(), wokenWorld(), awaitedWorld()})...)
}

// unanswered is the world of commits whose answer does not come. They take effect at any time, or
// never, while the same outcomes are looked up and committed again.
func unanswered(setup []string, others []verb) world {
	c := subjectClaim
	lost := []verb{}
	for _, o := range []struct {
		name  string
		entry store.Entry
	}{
		{"next", next(c)}, {"kept", kept(c)}, {"retry", entry(c, step.Commit{Kind: step.Retry, Step: "s"})}, {"park", awaits(c, "t", "go")},
		{"spawn", spawns(c, spec("", "k"), spec("", ""))}, {"spawn, keyed", spawns(c, spec("c1", ""))}, {"done", done(c)}, {"stop", stopped(c)},
	} {
		lost = append(lost, loses(o.name, o.entry), resolves(o.name, o.entry))
	}
	resolved := func(v verb) bool { return v.family == "resolve" }
	return world{name: "unanswered", setup: setup, only: resolved, verbs: append(lost, others...)}
}

// zombies returns verbs of a claim that is over: its row was reaped, and the same worker may have
// claimed it again.
func zombies() []verb {
	return []verb{
		commits("zombie: next", false, next(subjectClaim)), commits("zombie: next, slow", true, next(subjectClaim)),
		beats("zombie: beat", subjectClaim), insists("zombie: beat alone", subjectClaim),
		commits("zombie: done", false, done(subjectClaim)), commits("zombie: next, kept", false, kept(subjectClaim)),
		commits("zombie: park", false, awaits(subjectClaim, "t", "go")), commits("zombie: spawn", false, spawns(subjectClaim, spec("", ""))),
		releases("zombie: release", subjectClaim), transacts("zombie: own", next(subjectClaim)), transacts("zombie: own, done", done(subjectClaim)),
	}
}

func isZombie(v verb) bool { return strings.HasPrefix(v.name, "zombie") }

// families is the world of joins: two parents, and a child of a round that is over.
func families() world {
	child := with(executing, "visit", "1", "depth", "1")
	setup := []string{parked,
		row(subjectID, with(child, "parent_id", "1", "parent_round", "1", "claim_token", "11", "correlation_key", "'x'",
			"correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children}'")...),
		row(siblingID, with(with(expired, ofParent...), "claim_token", "12", "visit", "1", "crashes", "1", "depth", "1")...),
		row(strangerID, with(child, "parent_id", "1", "parent_round", "0", "claim_token", "15")...),
		row(secondID, "status", "'awaiting_children'", "visit", "4", "round", "4", "children_pending", "2"),
		row(nephewID, with(child, "parent_id", "6", "parent_round", "4", "claim_token", "17")...),
		row(nephewID+1, with(child, "parent_id", "6", "parent_round", "4", "claim_token", "18")...),
	}
	claim := func(id, token, parent, round int64) *step.Claim {
		return &step.Claim{ID: id, Token: token, Visit: 1, Step: "s", Queue: "default", Parent: parent, ParentRound: round, Depth: 1}
	}
	subject, last := claim(subjectID, 11, 1, 1), claim(siblingID, 12, 1, 1)
	stranger, nephew, niece := claim(strangerID, 15, 1, 0), claim(nephewID, 17, 6, 4), claim(nephewID+1, 18, 6, 4)
	return world{name: "families", setup: overdue(setup, parentID, subjectID), verbs: []verb{
		expires(), inTurn("fail overdue, retry", expires(), revives("", parentID)),
		commits("done", false, done(subject)), commits("stop", false, stopped(subject)), commits("done, slow", true, done(subject)), looksAt(subject),
		commits("sibling done", false, done(last)), commits("stranger done", false, done(stranger)),
		commits("both parents", false, done(subject), done(nephew)), commits("both parents, slow", true, done(subject), done(nephew)),
		commits("both parents, others", false, done(last), done(niece)), commits("both parents, others, slow", true, done(last), done(niece)),
		commits("all", false, done(subject), done(last), done(nephew), done(niece), done(stranger)),
		reaps("reap to the limit", 1), cancels("cancel child", subjectID), cancels("cancel parent", parentID),
		inTurn("cancel parent, retry", cancels("", parentID), revives("", parentID)),
		inTurn("cancel child, retry", cancels("", subjectID), revives("", subjectID)), cancelsFamily("cancel family", parentID),
		commits("spawn", false, spawns(subject, spec("", ""))),
		transacts("own: done", done(subject)), transacts("own: stop", stopped(subject)),
		delivers("signal parent", byID(parentID), "go", ""), deliversMany("signal many", "go", byID(secondID), byID(subjectID), byID(parentID)), holds("hold parents", parent|second, parentID, secondID), holds("hold family", parent, parentID, subjectID), claims("claim", "default", owner, 10), refers(parent, parentID),
		inserts("insert, same key", spec("x", "")), prunes(),
	}}
}

// graveyard is the world of ended instances: a failed subject with an inbox, which still occupies
// its key, and a child.
func graveyard() world {
	over := []string{"status", "'failed'", "failure", "'error'", "finished_at", "now() - interval '2 h'", "visit", "3", "round", "3"}
	grandchild := &step.Claim{ID: nephewID, Token: 17, Visit: 1, Step: "s", Queue: "default", Parent: subjectID, ParentRound: 3, Depth: 1}
	setup := []string{
		row(subjectID, with(over, "correlation_key", "'x'", "correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children,failed}'",
			"awaits", "'{go}'")...),
		row(siblingID, "status", "'done'", "finished_at", "now() - interval '2 h'", "parent_id", "2", "parent_round", "3",
			"joined", "'00000000-0000-0000-0000-000000000001'"),
		row(followerID, "status", "'done'", "finished_at", "now() - interval '2 h'"),
		row(nephewID, with(executing, "parent_id", "2", "parent_round", "3", "claim_token", "17", "visit", "1")...),
		row(strangerID, with(over, "correlation_key", "'z'", "correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children,failed}'")...),
		row(freedID, with(over, "correlation_key", "'v'", "correlation_scope", "'{runnable,executing,awaiting_signal,awaiting_children}'")...),
		signal(21, strangerID, "go", ""), signal(22, strangerID, "go", "d"),
		"UPDATE gendurable.signals SET consumed_at = now() WHERE id = 22",
	}
	return world{name: "graveyard", setup: setup, verbs: []verb{
		prunes(), delivers("signal", byID(strangerID), "go", ""), delivers("signal by key", byKey("z"), "go", ""), arrives("start", "z", "go", ""),
		inserts("insert, same key", spec("z", "")), revives("retry", strangerID),
		revives("retry parent", subjectID), revives("retry, key free", freedID), revives("retry, done", siblingID), inserts("insert, free key", spec("v", "")),
		commits("grandchild done", false, done(grandchild)), commits("grandchild spawns", false, spawns(grandchild, spec("", ""))),
		inTurn("retry, claim", revives("", strangerID), claims("", "default", owner, 10)),
		refers(subject, strangerID), holds("hold", subject, strangerID), cancels("cancel grandchild", nephewID),
	}}
}

// overdue sets the deadlines of rows to a past time.
func overdue(setup []string, ids ...int64) []string {
	for _, id := range ids {
		setup = append(setup, fmt.Sprintf("UPDATE gendurable.gen_durable SET deadline = now() - interval '1 s' WHERE id = %d", id))
	}
	return setup
}

func join[T any](lists ...[]T) (all []T) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// later makes an order's time long after the schedule.
func later(o *store.Order) { o.At = time.Now().Add(time.Hour) }

func urgent(x step.Spec) step.Spec {
	x.Priority = -1
	return x
}
