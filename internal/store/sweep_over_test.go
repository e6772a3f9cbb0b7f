package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// planted makes a graph under a policy: a and b execute, of which b has spawned a child that waits,
// c waits for both, and d for a time. It returns the claims of a and b, and that child.
func (b bench) planted(join *step.Join) (root int64, ids map[string]int64, claims map[string]*step.Claim, below int64) {
	b.t.Helper()
	c := b.executing(nil)
	e := graphOf(c, "a b c<a,b d")
	e.Commit.Join = join
	b.commit(newMark(), false, e)
	root, ids, claims = c.ID, b.nodes(c.ID), map[string]*step.Claim{}
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() + interval '1 d' WHERE id = $1`, ids["d"])
	for _, c := range b.claim().Claims {
		claims[c.Node] = c
	}
	require.Len(b.t, claims, 2)
	b.commit(newMark(), false, spawnOf(claims["b"], (&scene{}).nChildren(1)))
	below = int64(b.number(`SELECT id FROM gendurable.gen_durable WHERE parent_id = $1`, ids["b"]))
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() + interval '1 d' WHERE id = $1`, below)
	return root, ids, claims, below
}

const nodesLive = "a executing, b awaiting_children, c awaiting_children, d runnable"

// wake lets a root go on by its timeout, and claims it.
func (b bench) wake(root int64) *step.Claim {
	b.t.Helper()
	b.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() WHERE id = $1`, root)
	_, err := b.TimeOut(b.t.Context(), 10)
	require.NoError(b.t, err)
	return b.claimOne()
}

// A graph is over when its root has ended, however it ends and with any policy of its join: its
// remaining nodes are cancelled with the instances that they have spawned. Nothing is while the
// root lives, unless its join cancels the rest and the root has gone on. Nothing else of the root
// changes.
func TestAGraphIsOverWhenItsRootHasEnded(t *testing.T) {
	b := newWriter(t)
	ends := map[string]func(root int64){
		"cancelled while it waits": func(root int64) { b.operate(store.Order{Verb: store.Cancel, Most: 10}, root) },
		"over its deadline while it waits": func(root int64) {
			b.exec(`UPDATE gendurable.gen_durable SET deadline = now() WHERE id = $1`, root)
			require.Equal(t, []int64{root}, b.sweepOverdue().Failed)
		},
	}
	wakes := map[string]func(c *step.Claim){
		"done":      func(c *step.Claim) { b.commit(newMark(), false, endOf(c, true)) },
		"failed":    func(c *step.Claim) { b.commit(newMark(), true, endOf(c, false)) },
		"cancelled": func(c *step.Claim) { b.operate(store.Order{Verb: store.Cancel, Most: 10}, c.ID) },
		"lost too often": func(c *step.Claim) {
			b.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 h', crashes = 9 WHERE id = $1`, c.ID)
			got, err := b.Reap(t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{1}}, 100)
			require.NoError(t, err)
			require.Equal(t, []int64{c.ID}, got.Failed)
		},
		"done in its own transaction": func(c *step.Claim) {
			got, err := b.transact(me, newMark(), endOf(c, true), nil)
			require.NoError(t, err)
			require.True(t, got.Applied[c.ID])
		},
		"over its deadline, while it awaits a signal": func(c *step.Claim) {
			b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Await, Step: "s", State: []byte(`{}`), Names: []string{"go"}}})
			b.exec(`UPDATE gendurable.gen_durable SET deadline = now() WHERE id = $1`, c.ID)
			require.Equal(t, []int64{c.ID}, b.sweepOverdue().Failed)
		},
		"done after a Rejoin": func(c *step.Claim) {
			b.commit(newMark(), false, rejoinOf(c, step.Join{Timeout: time.Hour}))
			require.Equal(t, "awaiting_children", b.status(c.ID))
			b.commit(newMark(), false, endOf(b.wake(c.ID), true))
		},
		"cancelled after a rewind": func(c *step.Claim) {
			b.commit(newMark(), false, rejoinOf(c, step.Join{Timeout: time.Hour}))
			require.Len(t, b.operate(b.copied(store.Rewind, c.ID), c.ID).Changed, 1)
			require.Equal(t, "runnable", b.status(c.ID))
			require.False(t, b.restDue())
			b.operate(store.Order{Verb: store.Cancel, Most: 10}, c.ID)
		},
		"done after another round": func(c *step.Claim) {
			b.commit(newMark(), false, spawnOf(c, (&scene{}).nChildren(1)))
			kid := int64(b.number(`SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 AND node IS NULL`, c.ID))
			b.operate(store.Order{Verb: store.Cancel, Most: 10}, kid)
			b.commit(newMark(), false, endOf(b.claimOne(), true))
		},
	}
	for name, wake := range wakes {
		ends[name+", once it has gone on"] = func(root int64) {
			c := b.wake(root)
			require.False(t, b.restDue(), "the root lives")
			require.Empty(t, b.cancelRest())
			require.Equal(t, nodesLive, b.states(root))
			wake(c)
		}
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := b
			b.t = t
			root, ids, _, below := b.planted(&step.Join{Timeout: time.Hour})
			require.False(t, b.restDue())
			require.Empty(t, b.cancelRest())
			end(root)
			require.Contains(t, []string{"done", "failed"}, b.status(root))
			require.True(t, b.restDue())
			was := b.text(`SELECT (to_jsonb(g) - 'graphs')::text FROM gendurable.gen_durable g WHERE id = $1`, root)
			require.ElementsMatch(t, []int64{ids["a"], ids["b"], ids["c"], ids["d"], below}, b.cancelRest())
			require.Equal(t, 4, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND node IS NOT NULL AND status = 'failed'
				AND failure = 'cancelled' AND joined = commit_id`, root))
			require.Equal(t, was, b.text(`SELECT (to_jsonb(g) - 'graphs')::text FROM gendurable.gen_durable g WHERE id = $1 AND graphs IS NULL`, root))
			require.False(t, b.restDue())
			b.exec(`DELETE FROM gendurable.gen_durable`)
		})
	}
}

// The nodes of a graph that is over end without a claim, whatever they wait for: a worker that
// knows their machine or step, their turn in line or for a key, their delay, a paused queue.
// None spends the rate of a gate. The commit that ends the root says at once that there is
// something to cancel.
func TestANodeWhoseGraphIsOverNeedsNoClaim(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gate_keys (key, debt) VALUES ('g', 1)`)
	b.exec(`INSERT INTO gendurable.paused_queues (queue) VALUES ('paused')`)
	c := b.executing(nil)
	e := graphOf(c, "delayed stranger stray lined front keyed paused behind<front")
	e.Commit.Join = &step.Join{Timeout: time.Hour}
	b.commit(newMark(), false, e)
	for node, set := range map[string]string{
		"delayed":  `eligible_at = now() + interval '1 d'`,
		"stranger": `fsm = 'nobody', pick_lane = 2`,
		"stray":    `pick_lane = 4, aside_step = 'nowhere'`,
		"lined":    `pick_lane = 3, gate = 'g'`,
		"keyed":    `pick_lane = 1, partition_key = 'k'`,
		"paused":   `queue = 'paused'`,
		"front":    `queue = 'others'`,
	} {
		b.exec(`UPDATE gendurable.gen_durable SET `+set+` WHERE parent_id = $1 AND node = $2`, c.ID, node)
	}
	require.True(t, b.commit(newMark(), false, endOf(b.wake(c.ID), true)).Rest)
	require.Len(t, b.cancelRest(), 8)
	require.Equal(t, 8, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND failure = 'cancelled' AND claim_token = 0
		AND gate IS NULL AND pick_lane = 0`, c.ID), "none was claimed")
	require.Equal(t, 1, b.number(`SELECT debt FROM gendurable.gate_keys`))

	b = benchOn(t, b.pool) // a store that has met no graph has nothing to cancel
	_, kids := b.policedParent(1, nil)
	b.commit(newMark(), false, endOf(kids[0], true))
	require.False(t, b.commit(newMark(), false, endOf(b.claimOne(), true)).Rest)
}

// A root at the join of a graph that is over is not retried, only restarted. One that has failed at
// a later step is, and lets go on what the sweep has not reached. Its next end cancels that.
func TestARetriedRootHasItsGraphAgain(t *testing.T) {
	b := newBench(t)
	root, _, _, _ := b.planted(&step.Join{Timeout: time.Hour}) //nolint:dogsled // the root alone counts here
	b.commit(newMark(), false, endOf(b.wake(root), false))
	require.ErrorIs(t, b.operate(store.Order{Verb: store.Retry}, root).Refused[0].Why, store.ErrRoot)
	b.exec(`DELETE FROM gendurable.gen_durable`)

	root, ids, _, below := b.planted(&step.Join{Timeout: time.Hour})
	b.commit(newMark(), false, deciding["next"](b.wake(root)))
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	require.True(t, b.restDue())
	require.Len(t, b.operate(store.Order{Verb: store.Retry}, root).Changed, 1)
	require.False(t, b.restDue())
	require.Empty(t, b.cancelRest())
	require.Equal(t, nodesLive, b.states(root))
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	require.ElementsMatch(t, []int64{ids["a"], ids["b"], ids["c"], ids["d"], below}, b.cancelRest())
}

// A Restart of a root that has failed runs again what its end has cancelled, and takes nothing from
// what the sweep has not reached. Its next end cancels what is left then.
func TestARestartedRootHasItsGraphAgain(t *testing.T) {
	b := newBench(t)
	for name, most := range map[string]int{"nothing is cancelled": 0, "some are cancelled": 1, "all are cancelled": 9} {
		t.Run(name, func(t *testing.T) {
			b := b
			b.t = t
			root, ids, claims, _ := b.planted(&step.Join{Timeout: time.Hour})
			b.commit(newMark(), false, endOf(claims["a"], false))
			b.commit(newMark(), false, endOf(b.wake(root), false))
			if most > 0 {
				_, err := b.CancelRest(t.Context(), newMark(), 0, most)
				require.NoError(t, err)
			}
			require.Empty(t, b.restart(root).Refused)
			b.exact(root)
			require.Equal(t, "awaiting_children", b.status(root))
			require.False(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND losers[1] = round`, root) > 0)
			for _, id := range b.cancelRest() { // what a cancelled node has spawned
				require.NotContains(t, []int64{ids["a"], ids["b"], ids["c"], ids["d"]}, id)
			}
			require.NotContains(t, b.states(root), "cancelled")
			b.operate(store.Order{Verb: store.Cancel, Most: 10}, root)
			require.NotEmpty(t, b.cancelRest())
			require.Equal(t, 4, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND status = 'failed'`, root))
			require.False(t, b.restDue())
			b.exec(`DELETE FROM gendurable.gen_durable`)
		})
	}
}

// A join that cancels the rest does so when the root goes on, as of plain children; and a rewind of
// the root while it waits cancels no node. Then the end of the root does.
func TestARewoundRootKeepsItsGraph(t *testing.T) {
	b := newBench(t)
	for _, join := range []*step.Join{nil, {Timeout: time.Hour}, {Timeout: time.Hour, Cancel: true}} {
		root, ids, _, below := b.planted(join)
		require.Len(t, b.operate(b.copied(store.Rewind, root), root).Changed, 1)
		require.False(t, b.restDue())
		require.Empty(t, b.cancelRest())
		require.Equal(t, nodesLive, b.states(root))
		b.commit(newMark(), false, endOf(b.claimOne(), true))
		require.ElementsMatch(t, []int64{ids["a"], ids["b"], ids["c"], ids["d"], below}, b.cancelRest())
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
	root, ids, _, below := b.planted(&step.Join{Timeout: time.Hour, Cancel: true})
	woken := b.wake(root)
	require.ElementsMatch(t, []int64{ids["a"], ids["b"], ids["c"], ids["d"], below}, b.cancelRest())
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE coalesce(losers, graphs) IS NOT NULL`))
	b.commit(newMark(), false, endOf(woken, true))
	require.False(t, b.restDue())
}

// A root that makes one graph after the other notes the graphs with live nodes, and no others. Its
// end cancels what is left of all.
func TestARootOfSeveralGraphs(t *testing.T) {
	b := newBench(t)
	c := b.executing(nil)
	graphs := func() string {
		return b.text(`SELECT array_to_string(graphs, ' ') FROM gendurable.gen_durable WHERE id = $1`, c.ID)
	}
	again := func(text, holds string) {
		e := graphOf(c, text)
		e.Commit.Join = &step.Join{Timeout: time.Hour}
		b.commit(newMark(), false, e)
		_, woken, _ := b.drive(c.ID, "", holds)
		if woken == nil {
			woken = b.wake(c.ID)
		}
		c = woken
	}
	again("a b<a", "")
	first := graphs()
	again("c d<c", "c")
	require.NotEqual(t, first, graphs(), "the first is over")
	second := graphs()
	again("e", "e")
	require.Equal(t, second+" "+b.text(`SELECT round::text FROM gendurable.gen_durable WHERE id = $1`, c.ID), graphs())
	ids := b.nodes(c.ID)
	b.commit(newMark(), false, endOf(c, true))
	require.ElementsMatch(t, []int64{ids["c"], ids["d"], ids["e"]}, b.cancelRest())
	require.False(t, b.restDue())
}

// Plain children go on when their parent ends, unless its join cancels the rest.
func TestChildrenOutliveTheirParent(t *testing.T) {
	b := newBench(t)
	parent, _ := b.policedParent(2, &step.Join{Timeout: time.Hour})
	b.operate(store.Order{Verb: store.Cancel, Most: 10}, parent)
	require.False(t, b.restDue())
	require.Empty(t, b.cancelRest())
}
