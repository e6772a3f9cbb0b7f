package store_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// rejoinOf is a Rejoin under a policy.
func rejoinOf(c *step.Claim, join step.Join) store.Entry {
	return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Rejoin, Step: "join", State: json.RawMessage(`{}`), Join: &join}}
}

// woken commits a parent of n children, ends the first as done, and claims the parent, which that
// has woken.
func (b bench) woken(n int, join step.Join) (parent *step.Claim, kids []*step.Claim) {
	b.t.Helper()
	join.Ended = 1
	id, kids := b.policedParent(n, &join)
	b.commit(newMark(), false, endOf(kids[0], true))
	c := b.claimOne()
	require.Equal(b.t, id, c.ID)
	require.True(b.t, c.Joins())
	return c, kids[1:]
}

// Each row ends some of five children while the step of the Rejoin runs, and others in this order
// afterwards: d is done, f fails, s is skipped, and children joined by & end in one commit. The
// parent wakes with the end that is in capitals, and before it sleeps. Without such an end it wakes
// at once.
func TestRejoinWakesWithTheFirstEndThatMakesItTrue(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name         string
		join         step.Join
		unseen, ends string
	}{
		{"all", step.Join{}, "", "d f d D"},
		{"all, some have ended", step.Join{}, "df", "d F"},
		{"all have ended", step.Join{}, "ddff", ""},
		{"quorum", step.Join{Done: 2}, "", "d f D"},
		{"quorum, one unseen", step.Join{Done: 2}, "df", "D"},
		{"quorum, both unseen", step.Join{Done: 2}, "dd", ""},
		{"quorum out of reach", step.Join{Done: 3}, "f", "F"},
		{"quorum out of reach unseen", step.Join{Done: 4}, "f", ""},
		{"race", step.Join{Ended: 1}, "", "F"},
		{"race, one unseen", step.Join{Ended: 1}, "f", ""},
		{"fail fast", step.Join{Failed: 1}, "d", "d F"},
		{"fail fast, one unseen", step.Join{Failed: 1}, "df", ""},
		{"quorum or failures", step.Join{Done: 3, Failed: 2}, "", "f d F"},
		{"in one commit", step.Join{Done: 2}, "", "f D&d&f"},
		{"all, some are skipped", step.Join{}, "s", "s d S"},
		{"all are skipped unseen", step.Join{}, "ssss", ""},
		{"quorum out of reach by skips", step.Join{Done: 3}, "s", "S"},
		{"quorum out of reach by skips unseen", step.Join{Done: 3}, "ss", ""},
		{"race, skips unseen", step.Join{Ended: 1}, "s", "s F"},
		{"fail fast, skips unseen", step.Join{Failed: 1}, "ds", "s F"},
		{"fail fast, a failure unseen beside a skip", step.Join{Failed: 1}, "sf", ""},
	} {
		for _, looked := range []bool{false, true} {
			parent, kids := b.woken(5, step.Join{})
			end := func(ends string) []string {
				var batch []store.Entry
				for _, how := range strings.Split(ends, "&") {
					batch = append(batch, endsAs(kids[0], how))
					kids = kids[1:]
				}
				return b.commit(newMark(), looked, batch...).Queues
			}
			for _, how := range c.unseen {
				require.Empty(t, end(string(how)), "%s: it runs", c.name)
			}
			join := c.join
			if looked {
				join.Seen = &step.Seen{Done: 1}
			}
			got := b.commit(newMark(), looked, rejoinOf(parent, join))
			require.Equal(t, c.ends == "", b.status(parent.ID) == "runnable", c.name)
			require.Equal(t, c.ends == "", len(got.Queues) > 0, c.name)
			for _, ends := range strings.Fields(c.ends) {
				require.Equal(t, "awaiting_children", b.status(parent.ID), "%s before %s", c.name, ends)
				require.Equal(t, ends != strings.ToLower(ends), len(end(ends)) > 0, c.name)
			}
			again := b.claimOne()
			require.Equal(t, parent.ID, again.ID, c.name)
			require.True(t, again.Joins(), c.name)
			require.Equal(t, []int64{parent.Round, parent.Visit + 1}, []int64{again.Round, again.Visit}, c.name)
			require.Equal(t, 5, b.number(`SELECT children_pending + join_done + join_failed + (
				SELECT count(*) FROM gendurable.gen_durable k WHERE k.parent_id = g.id AND k.failure = 'skipped') FROM gendurable.gen_durable g WHERE id = $1`, parent.ID), c.name)
			for _, kid := range kids {
				require.Empty(t, b.commit(newMark(), false, endOf(kid, true)).Queues, c.name)
			}
			require.Equal(t, "executing", b.status(parent.ID))
			b.exec(`DELETE FROM gendurable.gen_durable`)
		}
	}
}

// A child whose end shares the commit of its parent's Rejoin is counted once.
func TestRejoinBesideTheEndOfAChild(t *testing.T) {
	b := newBench(t)
	for _, slow := range []bool{false, true} {
		parent, kids := b.woken(4, step.Join{})
		b.commit(newMark(), slow, rejoinOf(parent, step.Join{Ended: 2, Seen: &step.Seen{Done: 1}}), endOf(kids[0], false))
		require.Equal(t, "awaiting_children", b.status(parent.ID))
		require.Equal(t, "2 1 1", b.counts(parent.ID))
		require.Equal(t, []string{"default"}, b.commit(newMark(), slow, endOf(kids[1], true)).Queues)
		require.Equal(t, "1 2 1", b.counts(parent.ID))
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// A child that an operator runs again has been counted, as failed: a Rejoin does not wait for it,
// and its next end, whichever it is, hides no first end of another one. That holds for each verb,
// and whether the step has looked before it or behind it.
func TestRejoinAfterTheRetryOfAChild(t *testing.T) {
	b := newBench(t)
	for _, verb := range []store.Verb{store.Retry, store.Restart, store.Rewind} {
		for _, again := range []string{"runnable", "done", "failed"} {
			parent, kids := b.woken(4, step.Join{})
			b.commit(newMark(), false, endOf(kids[0], false))
			seen := b.seen(parent)
			require.Equal(t, step.Seen{Done: 1, Failed: 1}, seen)
			b.runAgain(verb, kids[0].ID)
			require.Equal(t, seen, b.seen(parent), "it counts as it first ended")
			if again != "runnable" {
				require.Empty(t, b.commit(newMark(), false, endOf(b.claimKid(), again == "done")).Queues, "%s, %s", verb, again)
			}
			require.Equal(t, again, b.status(kids[0].ID))
			require.Equal(t, seen, b.seen(parent), "%s, %s: it counts as it first ended", verb, again)
			for _, join := range []step.Join{{Ended: 1}, {Failed: 1}} {
				join.Seen = &seen
				b.commit(newMark(), false, rejoinOf(parent, join))
				require.Equal(t, "awaiting_children", b.status(parent.ID), "%s, %s: it has nothing new", verb, again)
				require.Equal(t, "2 1 1", b.counts(parent.ID))
				b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = $2, lease_expires_at = now() + interval '1 hour' WHERE id = $1`,
					parent.ID, me)
				parent.Visit++
			}
			b.commit(newMark(), false, endOf(kids[1], false))
			b.commit(newMark(), false, rejoinOf(parent, step.Join{Failed: 1, Seen: &seen}))
			require.Equal(t, "runnable", b.status(parent.ID), "%s, %s: a child has failed that it has not seen", verb, again)
			b.exec(`DELETE FROM gendurable.gen_durable`)
		}
	}
}

// A Restart takes back ends that a Rejoin has counted. The next end wakes the parent then, as
// before.
func TestARestartBeneathARejoin(t *testing.T) {
	b := newBench(t)
	for _, join := range []step.Join{{Ended: 1}, {Failed: 1}} {
		for _, of := range []string{"the child", "the parent"} {
			for _, looked := range []bool{false, true} {
				parent, kids := b.woken(5, step.Join{})
				b.commit(newMark(), false, endOf(kids[0], false), endOf(kids[1], false))
				if looked {
					join.Seen = new(b.seen(parent))
				} else { // it has seen what its parent had counted
					join.Seen = nil
					b.exec(`UPDATE gendurable.gen_durable SET join_failed = 2 WHERE id = $1`, parent.ID)
				}
				b.commit(newMark(), false, rejoinOf(parent, join))
				require.Equal(t, "2 1 2", b.counts(parent.ID))
				if of == "the child" {
					b.runAgain(store.Restart, kids[0].ID)
					require.Equal(t, "3 1 1", b.counts(parent.ID))
				} else {
					b.runAgain(store.Restart, parent.ID)
					require.Equal(t, "4 1 0", b.counts(parent.ID))
				}
				require.Equal(t, "awaiting_children", b.status(parent.ID))
				require.Len(t, b.commit(newMark(), false, endOf(kids[2], false)).Queues, 1, "it sleeps through an end")
				require.Equal(t, "runnable", b.status(parent.ID))
				b.exec(`DELETE FROM gendurable.gen_durable`)
			}
		}
	}
}

// runAgain carries out a verb that lets an instance run again. A Rewind is one to the step at which
// it stands.
func (b bench) runAgain(verb store.Verb, id int64) {
	b.t.Helper()
	o := &store.Order{Verb: verb, Mark: newMark(), Most: 10}
	if verb == store.Rewind {
		state := json.RawMessage(b.text(`SELECT state::text FROM gendurable.gen_durable WHERE id = $1`, id))
		o.Edits = map[int64]store.Edit{id: {Version: 1, Visit: int64(b.number(`SELECT visit FROM gendurable.gen_durable WHERE id = $1`, id)),
			Old: state, New: state, To: b.text(`SELECT step FROM gendurable.gen_durable WHERE id = $1`, id)}}
	}
	got, err := b.Operate(b.t.Context(), []int64{id}, o)
	require.NoError(b.t, err)
	require.Empty(b.t, got.Refused)
}

// claimKid claims the one child that can run.
func (b bench) claimKid() *step.Claim {
	b.t.Helper()
	got := b.claim(func(p *store.ClaimParams) { p.Queue, p.Machines = "kids", []string{"kid/1"} }).Claims
	require.Len(b.t, got, 1)
	return got[0]
}

// seen is what a step sees now of the children of its round.
func (b bench) seen(parent *step.Claim) (seen step.Seen) {
	b.t.Helper()
	children, err := b.round(parent.ID, parent.Round)
	require.NoError(b.t, err)
	for _, c := range children {
		switch {
		case c.Retried || c.Status == "failed":
			seen.Failed++
		case c.Status == "done":
			seen.Done++
		}
	}
	return seen
}

// A rest that is due is cancelled though its parent waits for the round again, and the last of it
// wakes the parent. A Rejoin with its own policy arms the rest anew.
func TestRejoinAndTheRest(t *testing.T) {
	b := newBench(t)
	parent, kids := b.woken(4, step.Join{Cancel: true})
	b.commit(newMark(), false, rejoinOf(parent, step.Join{Cancel: true, Seen: &step.Seen{Done: 1}}))
	require.Equal(t, "awaiting_children", b.status(parent.ID))
	require.True(t, b.restDue())
	require.ElementsMatch(t, claimIDs(kids), b.cancelRest())
	require.Equal(t, "runnable", b.status(parent.ID))
	require.Equal(t, "0 1 3", b.counts(parent.ID))
	require.False(t, b.restDue())
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE losers IS NOT NULL`))
	b.exec(`DELETE FROM gendurable.gen_durable`)

	parent, kids = b.woken(4, step.Join{})
	b.commit(newMark(), false, rejoinOf(parent, step.Join{Ended: 1, Cancel: true, Seen: &step.Seen{Done: 1}}))
	require.False(t, b.restDue())
	require.Empty(t, b.cancelRest())
	require.True(t, b.commit(newMark(), false, endOf(kids[0], true)).Rest)
	require.ElementsMatch(t, claimIDs(kids[1:]), b.cancelRest())
}

// A Rejoin has signals and a timeout as a first join has, and consumes what its step was given.
func TestRejoinUntilASignalOrATime(t *testing.T) {
	b := newBench(t)
	join := func() step.Join { return step.Join{Names: []string{"go"}, Timeout: time.Hour} }
	parent, _ := b.woken(3, step.Join{Names: []string{"go"}})
	b.commit(newMark(), false, rejoinOf(parent, join()))
	require.Equal(t, "awaiting_children", b.status(parent.ID))
	require.True(t, b.deliver(parent.ID, named("go")).Woken)
	parent = b.claimOne()
	require.Len(t, parent.Awaited, 1)
	b.commit(newMark(), false, rejoinOf(parent, join()))
	require.Equal(t, "awaiting_children", b.status(parent.ID), "it has consumed the signal")
	b.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() WHERE id = $1`, parent.ID)
	_, err := b.TimeOut(t.Context(), 10)
	require.NoError(t, err)
	parent = b.claimOne()
	require.True(t, parent.TimedOut)
	b.deliver(parent.ID, named("go"))
	require.Contains(t, b.commit(newMark(), false, rejoinOf(parent, join())).Queues, "default")
	parent = b.claimOne()
	require.Len(t, parent.Awaited, 1)

	// A later round without a policy takes no notice of it.
	b.commit(newMark(), false, spawnOf(parent, kids(2)))
	late := b.runKids(parent.ID)[3:]
	for i, kid := range late {
		kid.ParentRound = parent.Visit + 1
		require.Equal(t, i == 1, len(b.commit(newMark(), false, endOf(kid, true)).Queues) > 0)
	}
}

// Four workers end children while their parent rejoins with each end, as it wakes. Each of its
// visits but the first follows an end that the visit before has not seen, and it sees all of them
// at last.
func TestConcurrentEndsAndRejoins(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // not a secret
	for range 10 {
		parent, kids := b.woken(4+rng.IntN(17), step.Join{})
		size := len(kids) + 1
		batches := make([][]store.Entry, 4)
		for _, kid := range kids {
			w := rng.IntN(len(batches))
			batches[w] = append(batches[w], endOf(kid, rng.IntN(2) == 0))
		}
		var working sync.WaitGroup
		errs := make(chan error, len(batches))
		for _, batch := range batches {
			working.Go(func() { errs <- b.commitAtLast(batch) })
		}
		for seen := 0; ; {
			children, err := b.round(parent.ID, parent.Round)
			require.NoError(t, err)
			require.Len(t, children, size)
			var now step.Seen
			for _, child := range children {
				switch child.Status {
				case "done":
					now.Done++
				case "failed":
					now.Failed++
				}
			}
			require.Greater(t, now.Done+now.Failed, seen, "woken by nothing new")
			if seen = now.Done + now.Failed; seen == size {
				break
			}
			require.NoError(t, b.commitAtLast([]store.Entry{rejoinOf(parent, step.Join{Ended: 1, Seen: &now})}))
			steady.Eventually(t, func() bool {
				got := b.claim()
				if len(got.Claims) == 0 {
					return false
				}
				parent = got.Claims[0]
				return true
			})
		}
		working.Wait()
		for range batches {
			require.NoError(t, <-errs)
		}
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}
