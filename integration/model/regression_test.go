package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
)

// These histories once revealed a difference between the engine and its specification, or between a
// broken engine and this one. They are told again in as few operations as possible. Each verb
// compares both sides.

func newHistory(t *testing.T) *pair {
	t.Helper()
	t.Parallel()
	p := newPair(t, newWorld(t))
	t.Cleanup(func() {
		if !t.Failed() {
			p.compareTables()
		}
	})
	return p
}

var (
	everyone = worker{name: nameOf("everyone"), machines: machines}
	newcomer = worker{name: nameOf("newcomer"), machines: machines[1:]}
	veteran  = worker{name: nameOf("veteran"), machines: machines[:1]}
)

// plain returns the spec of an instance of the first machine, in queue "pay".
func plain(state string) model.Spec {
	return model.Spec{Machine: machines[0], Step: "first", Queue: "pay", State: state, Scope: model.ScopeLive, At: model.Never}
}

func outcome(kind model.Kind, state string) model.Outcome {
	return model.Outcome{Kind: kind, Step: "second", State: state, At: model.Never}
}

func next(state string) model.Outcome { return outcome(model.Next, state) }

func awaitGo(to string) model.Outcome {
	o := outcome(model.Await, "0")
	o.Step, o.Names = to, []string{"go"}
	return o
}

func spawn(children ...model.Spec) model.Outcome {
	o := outcome(model.ScheduleChildren, "0")
	o.Children = children
	return o
}

func stop() model.Outcome {
	return model.Outcome{Kind: model.Fail, Err: "decided", Failure: "decided", At: model.Never}
}

// claimOne claims the one instance that must be next.
func (p *pair) claimOne(w *worker, want model.ID) claim {
	claims := p.claim(w, "pay", 1, wide)
	require.Len(p, claims, 1)
	require.Equal(p, want, claims[0].ID)
	return claims[0]
}

func (p *pair) commitOne(c claim, o model.Outcome) { p.commit(false, decision{claim: c, outcome: o}) }

// The newest twenty errors of an instance stay, through all that happens to it meanwhile.
func TestErrorsOfManyAttempts(t *testing.T) {
	p := newHistory(t)
	spec := plain("0")
	spec.Life = time.Minute
	i := p.insert(spec)[0]
	for n := range 25 {
		o := model.Outcome{Kind: model.Retry, State: "0", Err: "try " + number(n), At: model.Never}
		if n == 12 {
			o = next("1")
		}
		p.commitOne(p.claimOne(&everyone, i), o)
	}
	p.compareTables()
	p.advance(time.Minute)
	p.expire(1000)
	p.redrive(i)
	p.commitOne(p.claimOne(&everyone, i), stop())
}

// A child and its parent, which was due before it, are over their deadlines in one sweep.
func TestAFamilyOverItsDeadline(t *testing.T) {
	p := newHistory(t)
	mortal, child := plain("0"), plain("0")
	mortal.Life, child.Life = time.Second, 2*time.Second
	p.insert(mortal)
	parent := p.insert(mortal)[0]
	claims := p.claim(&everyone, "pay", 2, wide)
	p.commitOne(claims[1], spawn(child, plain("1")))
	require.Equal(t, parent, claims[1].ID)
	p.commitOne(claims[0], awaitGo("first"))
	p.advance(2 * time.Second)
	p.expire(1000)
	p.redrive(parent)
	p.claimOne(&everyone, 4)
}

// Rows were set aside for an unknown machine, and the first of them wait for their partition key. A
// small claim must not pass over the next of them.
func TestSetAsideKeepsItsPlaceBehindABusyKey(t *testing.T) {
	p := newHistory(t)
	busy, follower, free, visible := plain("1"), plain("2"), plain("3"), plain("4")
	busy.PartitionKey, follower.PartitionKey = "north", "north"
	follower.Machine, free.Machine, visible.Machine = machines[1], machines[1], machines[1]
	p.claimOne(&everyone, p.insert(busy)[0])
	ids := p.insert(follower, free)
	require.Empty(t, p.claim(&veteran, "pay", 4, wide), "which sets both aside")
	p.insert(visible)
	p.claimOne(&newcomer, ids[1])
}

// A child that was counted, and then redriven, is not counted again when it ends again (T42).
func TestRedrivenChildIsCountedOnce(t *testing.T) {
	p := newHistory(t)
	parent := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, parent), spawn(plain("2"), plain("3")))
	first, second := parent+1, parent+2
	p.commitOne(p.claimOne(&everyone, first), stop())
	p.advance(time.Second)
	p.redrive(first)
	p.claimOne(&everyone, second)
	p.commitOne(p.claimOne(&everyone, first), stop())
	require.Equal(t, model.AwaitingChildren, p.model.Get(parent).Status)
}

// A failed instance runs again, and counts as failed no more. A node behind it that has asked to
// run again goes on; one that gave way waits again.
func TestARestartBesideWhatHasBegun(t *testing.T) {
	for name, unbegun := range map[string]bool{"asked to run again": false, "gave way": true} {
		t.Run(name, func(t *testing.T) {
			p := newHistory(t)
			root := p.insert(plain("1"))[0]
			graph := spawn(plain("2"), plain("3"))
			graph.Graph = &model.Graph{Nodes: []string{"a", "b"}, Edges: []model.Link{{From: 0, To: 1, Needs: model.NeedsEnd}}}
			graph.Policy = &model.Policy{Failures: 2}
			p.commitOne(p.claimOne(&everyone, root), graph)
			first, behind := root+1, root+2
			p.commitOne(p.claimOne(&everyone, first), stop())
			p.commitOne(p.claimOne(&everyone, behind), model.Outcome{Kind: model.Again, Unbegun: unbegun, At: model.Never})
			p.restart(root)
			require.Equal(t, unbegun, p.model.Get(behind).Status == model.AwaitingChildren)
			require.Zero(t, p.model.Get(root).Join.Failed)
		})
	}
}

// A node that gives way frees its partition key although no row is held: the next of the key goes
// on once the worker has promoted it.
func TestTheKeyOfANodeThatGivesWay(t *testing.T) {
	p := newHistory(t)
	root := p.insert(plain("1"))[0]
	of := func(state string) model.Spec {
		spec := plain(state)
		spec.PartitionKey = "north"
		return spec
	}
	graph := spawn(of("2"))
	graph.Graph = &model.Graph{Nodes: []string{"a"}}
	p.commitOne(p.claimOne(&everyone, root), graph)
	node := p.claimOne(&everyone, root+1)
	next := p.insert(of("3"))[0]
	p.commitOne(node, model.Outcome{Kind: model.Again, Delay: time.Minute, Unbegun: true, At: model.Never})
	require.Contains(t, p.missed, "north")
	p.claimOne(&everyone, next)
}

// Two nodes that a failure leaves without what they wait for are skipped at once: why the one is
// does not depend on the other's end.
func TestWhyNodesAreSkippedAtOnce(t *testing.T) {
	p := newHistory(t)
	root := p.insert(plain("1"))[0]
	graph := spawn(plain("2"), plain("3"), plain("4"))
	graph.Graph = &model.Graph{
		Nodes: []string{"a", "b", "c"}, Any: []int{0, 0, 1},
		Edges: []model.Link{{From: 0, To: 1}, {From: 0, To: 2, Needs: model.NeedsAny}, {From: 1, To: 2}},
	}
	p.commitOne(p.claimOne(&everyone, root), graph)
	p.commitOne(p.claimOne(&everyone, root+1), stop())
	p.skips(1000)
	require.Equal(t, `skipped: too few of a quorum are done: node "a" is failed`, p.model.Get(root+3).LastError)
	p.claimOne(&everyone, root)
}

// Children of a round that its parent has given up do not open the barrier of the next (T87).
func TestOldRoundDoesNotOpenTheNewBarrier(t *testing.T) {
	p := newHistory(t)
	parent := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, parent), spawn(plain("2")))
	old := p.claimOne(&everyone, parent+1)
	p.cancel(parent)
	p.redrive(parent)
	p.commitOne(p.claimOne(&everyone, parent), spawn(plain("3")))
	p.commitOne(old, stop())
	require.Equal(t, model.AwaitingChildren, p.model.Get(parent).Status)
	p.commitOne(p.claimOne(&everyone, parent+2), stop())
	p.claimOne(&everyone, parent)
}

// A child and its parent, which runs again before the join since it was redriven, end in one batch:
// neither is left out.
func TestParentAndChildEndInOneBatch(t *testing.T) {
	p := newHistory(t)
	parent := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, parent), spawn(plain("2")))
	p.cancel(parent)
	p.advance(time.Second)
	p.redrive(parent)
	child := p.claimOne(&everyone, parent+1)
	p.commit(false, decision{claim: p.claimOne(&everyone, parent), outcome: stop()}, decision{claim: child, outcome: stop()})
}

// Two parents spawn children of one key in one batch. Children of a parent whose outcome applies do
// not wait behind a child of the parent whose outcome came late, since that child is never
// inserted.
func TestChildrenDoNotWaitBehindThoseOfALateParent(t *testing.T) {
	p := newHistory(t)
	ids := p.insert(plain("1"), plain("2"))
	late, timely := p.claimOne(&everyone, ids[0]), p.claimOne(&everyone, ids[1])
	p.commitOne(late, awaitGo("second"))
	child := plain("3")
	child.PartitionKey = "south"
	p.commit(false, decision{claim: late, outcome: spawn(child)}, decision{claim: timely, outcome: spawn(child)})
	p.claimOne(&everyone, ids[1]+1)
}

// A consumed signal is still recognised as a duplicate, but wakes no instance (T5): neither by its
// redelivery nor when an instance parks for its name.
func TestTombstoneWakesNobody(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, id), awaitGo("second"))
	p.deliver(model.Address{ID: id}, "go", "0", "x")
	p.commitOne(p.claimOne(&everyone, id), next("2"))
	p.commitOne(p.claimOne(&everyone, id), awaitGo("first"))
	p.deliver(model.Address{ID: id}, "go", "0", "x")
	require.Equal(t, model.AwaitingSignal, p.model.Get(id).Status)
	p.deliver(model.Address{ID: id}, "go", "0", "y")
	p.claimOne(&everyone, id)
}

// The outcome of a lost claim consumes nothing, although the signals that it received are still
// there for its successor (T84).
func TestLateOutcomeConsumesNothing(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, id), awaitGo("second"))
	p.deliver(model.Address{ID: id}, "go", "0", "")
	lost := p.claimOne(&everyone, id)
	p.advance(lease + time.Second)
	p.reap(&everyone, 1000)
	p.claimOne(&everyone, id)
	p.commitOne(lost, next("2"))
	require.Len(t, p.model.Inbox(id), 1)
}

// An instance collects a set by parking towards the same step. A signal that it has already
// received does not wake it, each new signal does, and a claim brings all of them (T2).
func TestCollectingASet(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, id), awaitGo("first"))
	for n := 1; n <= 3; n++ {
		p.deliver(model.Address{ID: id}, "go", "0", "")
		c := p.claimOne(&everyone, id)
		require.Len(t, c.Awaited, n)
		p.commitOne(c, awaitGo("first"))
		require.Equal(t, model.AwaitingSignal, p.model.Get(id).Status)
	}
	p.deliver(model.Address{ID: id}, "go", "0", "")
	p.commitOne(p.claimOne(&everyone, id), awaitGo("second"))
	require.Equal(t, model.Runnable, p.model.Get(id).Status, "towards another step nothing is ignored")
}

// A signal that is a duplicate, even of a consumed one, is reported as such even if the inbox is
// full.
func TestDuplicateOutranksFullInbox(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, id), awaitGo("second"))
	p.deliver(model.Address{ID: id}, "go", "0", "x")
	p.commitOne(p.claimOne(&everyone, id), next("2"))
	for range inboxCap {
		p.deliver(model.Address{ID: id}, "halt", "0", "")
	}
	p.deliver(model.Address{ID: id}, "go", "0", "x")
	p.deliver(model.Address{ID: id}, "go", "0", "y")
	require.Len(t, p.model.Inbox(id), inboxCap)
}

// The crash that exceeds the limit ends the instance and settles its join. A reaper that does not
// know the machine applies no limit.
func TestCrashLimit(t *testing.T) {
	p := newHistory(t)
	parent := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, parent), spawn(plain("2")))
	child := parent + 1
	for crashes := 1; crashes <= 3; crashes++ {
		p.claimOne(&everyone, child)
		p.advance(lease + time.Second)
		p.reap(&newcomer, 1000)
		require.Equal(t, crashes, p.model.Get(child).Crashes)
		p.advance(5 * time.Minute)
	}
	p.claimOne(&everyone, child)
	p.advance(lease + time.Second)
	p.reap(&everyone, 1000)
	require.Equal(t, "crashes", p.model.Get(child).Failure)
	p.claimOne(&everyone, parent)
}

func TestCrashLimitIsExact(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	for crashes := range crashLimits[machines[0]] + 1 {
		require.Equal(t, crashes, p.claimOne(&everyone, id).Crashes)
		p.advance(lease + time.Second)
		p.reap(&everyone, 1000)
	}
	require.Equal(t, model.Failed, p.model.Get(id).Status)
}

// If there are too many tombstones, the oldest go: the last consumed signal is still recognised as
// a duplicate.
func TestOldestTombstonesGoFirst(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	for _, key := range []string{"x", "y", "z"} {
		p.commitOne(p.claimOne(&everyone, id), awaitGo("second"))
		p.deliver(model.Address{ID: id}, "go", "0", key)
		p.commitOne(p.claimOne(&everyone, id), next("2"))
		p.advance(time.Second)
	}
	p.prune(retention, 1000)
	p.deliver(model.Address{ID: id}, "go", "0", "z")
	require.Empty(t, p.model.Inbox(id))
	p.deliver(model.Address{ID: id}, "go", "0", "x")
	require.Len(t, p.model.Inbox(id), 1)
}

// If another session holds the head of a key, the key's rows can neither be claimed nor moved
// behind it. As many of them as a claim looks at once kept it from all others.
func TestAHeldHeadHoldsUpItsKeyOnly(t *testing.T) {
	p := newHistory(t)
	first, second := plain("1"), plain("2")
	first.PartitionKey, second.PartitionKey = "north", "north"
	head := p.insert(first)[0]
	p.insert(second)
	other := p.insert(plain("3"))[0]
	p.hold(head)
	claims := p.claim(&everyone, "pay", 1, narrow)
	require.Len(t, claims, 1)
	require.Equal(t, other, claims[0].ID)
	p.letGo()
	p.claimOne(&everyone, head)
}

// The same behind a row that executes.
func TestAHeldHolderOfAKeyHoldsUpItsKeyOnly(t *testing.T) {
	p := newHistory(t)
	first, second := plain("1"), plain("2")
	first.PartitionKey, second.PartitionKey = "north", "north"
	holder := p.insert(first)[0]
	c := p.claimOne(&everyone, holder)
	behind := p.insert(second)[0]
	p.hold(holder)
	other := p.insert(plain("3"))[0]
	require.Equal(t, other, p.claim(&everyone, "pay", 1, narrow)[0].ID)
	p.letGo()
	p.commitOne(c, outcome(model.Finish, ""))
	p.claimOne(&everyone, behind)
}

// Children of a parent that another session holds cannot end. Sweeps that look at a few rows at a
// time found the same children again and again, and never the rows after them.
func TestAHeldParentsChildrenHoldUpNoDeadline(t *testing.T) {
	p := newHistory(t)
	mortal := plain("2")
	mortal.Life = time.Second
	parent := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, parent), spawn(mortal, mortal, mortal))
	p.advance(time.Microsecond)
	p.insert(mortal)
	p.hold(parent)
	p.advance(time.Minute)
	p.expire(2)
	p.letGo()
	p.expire(2)
}

func TestAHeldParentsChildrenHoldUpNoReaper(t *testing.T) {
	p := newHistory(t)
	parent := p.insert(plain("1"))[0]
	p.commitOne(p.claimOne(&everyone, parent), spawn(plain("2"), plain("3"), plain("4")))
	for range crashLimits[machines[0]] {
		p.claim(&everyone, "pay", 3, wide)
		p.advance(lease + time.Second)
		p.reap(&everyone, 1000)
		p.advance(5 * time.Minute)
	}
	p.claim(&everyone, "pay", 3, wide)
	p.advance(time.Microsecond)
	p.claimOne(&everyone, p.insert(plain("5"))[0])
	p.hold(parent)
	p.advance(lease + time.Second)
	p.reap(&everyone, 2)
	p.letGo()
	p.reap(&everyone, 2)
}

// The answer to a commit is lost, and another session holds the row of one of its outcomes.
func TestAnOutcomeIsLeftOutAndGoesOn(t *testing.T) {
	p := newHistory(t)
	held, free := p.insert(plain("1"))[0], p.insert(plain("2"))[0]
	a, b := p.claimOne(&everyone, held), p.claimOne(&everyone, free)
	p.hold(held)
	on := p.commit(false, decision{claim: a, outcome: next("3")}, decision{claim: b, outcome: next("4")})
	require.Len(t, on, 1)
	p.letGo()
	p.commitOne(on[0], next("5"))
}

// The function of a claim that is over is not called.
func TestALateStepsOwnTransactionDoesNotBegin(t *testing.T) {
	p := newHistory(t)
	id := p.insert(plain("1"))[0]
	c := p.claimOne(&everyone, id)
	p.cancel(id)
	p.transact(decision{claim: c, outcome: next("2")})
}

// A schedule is due at its time, not only after it, and once.
func TestAScheduleIsDueAtItsTime(t *testing.T) {
	p := newHistory(t)
	p.advance(beat - time.Microsecond)
	p.fire()
	p.advance(time.Microsecond)
	p.fire()
	p.fire()
	require.Len(t, p.model.Instances(func(*model.Instance) bool { return true }), 1)
}

// Children of two races are over one deadline, and a sweep takes them in pages that it chooses: a
// parent that wakes for one page does not count what the next one ends.
func TestPagesOfOneDeadline(t *testing.T) {
	p := newHistory(t)
	mortal := plain("2")
	mortal.Life = time.Second
	var parents []model.ID
	for range 2 {
		parents = append(parents, p.insert(plain("1"))...)
	}
	next := parents[1] + 1 // the first child
	claims := p.claim(&everyone, "pay", 2, wide)
	for i := range claims {
		race := spawn(mortal, mortal)
		race.Policy = &model.Policy{Ends: 1}
		p.commitOne(claims[i], race)
	}
	p.pause(next) // its row is behind the others now
	p.resume(next)
	p.advance(time.Minute)
	p.expire(3)
	p.compareTables()
}
