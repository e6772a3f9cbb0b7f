package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// arrange makes a graph under the policy that a plain graph has, or another one.
func (b bench) arrange(text string, join *step.Join) (root int64, ids map[string]int64) {
	b.t.Helper()
	c := b.executing(nil)
	e := graphOf(c, text)
	if e.Commit.Join = join; join == nil {
		e.Commit.Join = &step.Join{Cancel: true}
	}
	b.commit(newMark(), false, e)
	return c.ID, b.nodes(c.ID)
}

// drive runs the nodes of a root until nothing is left to claim, or the root executes, whose claim
// it returns. Nodes whose names are in fails fail, those in holds are left executing. It returns
// the names of those that ran.
func (b bench) drive(root int64, fails, holds string) (ran string, woken *step.Claim, held []*step.Claim) {
	b.t.Helper()
	for {
		b.skip()
		got := b.claim().Claims
		if len(got) == 0 {
			return ran, nil, held
		}
		slices.SortFunc(got, func(a, b *step.Claim) int { return strings.Compare(a.Node, b.Node) })
		for _, c := range got {
			switch {
			case c.ID == root:
				return ran, c, held
			case strings.Contains(holds, c.Node):
				held = append(held, c)
				continue
			}
			e := b.endNode(c, !strings.Contains(fails, c.Node))
			if e.Commit.Failure != "skipped" {
				ran += c.Node
			}
			b.commit(newMark(), false, e)
		}
	}
}

func (b bench) restart(id int64) store.Operated {
	b.t.Helper()
	return b.operate(store.Order{Verb: store.Restart, Most: 1000}, id)
}

// exact holds a waiting root to its nodes, and each waiting node to its edges.
func (b bench) exact(root int64) {
	b.t.Helper()
	require.Equal(b.t, []string{"0"}, b.column(`SELECT (children_pending - (SELECT count(*) FROM gendurable.gen_durable k WHERE k.parent_id = g.id
		AND k.parent_round = g.round AND k.joined IS NULL))::text FROM gendurable.gen_durable g WHERE g.id = $1 AND g.status = 'awaiting_children'`, root))
	require.Empty(b.t, b.column(`SELECT concat_ws(' ', join_size, children_pending, join_done, join_failed) FROM gendurable.gen_durable g
		WHERE g.id = $1 AND (join_size - children_pending <> join_done + join_failed + (SELECT count(*) FROM gendurable.gen_durable k
			WHERE k.parent_id = g.id AND k.parent_round = g.round AND k.failure = 'skipped') OR join_done <> (SELECT count(*) FROM gendurable.gen_durable k
			WHERE k.parent_id = g.id AND k.parent_round = g.round AND k.status = 'done'))`, root))
	require.Empty(b.t, b.column(`SELECT n.node FROM gendurable.gen_durable n WHERE n.parent_id = $1 AND n.status = 'awaiting_children' AND n.visit = 0
		AND n.children_pending <> (SELECT count(*) FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
			WHERE e.to_id = n.id AND f.joined IS NULL AND e.needs < 3) + coalesce((n.join_done < n.wake_done)::int, 0)`, root))
	require.Empty(b.t, b.column(`SELECT n.node FROM gendurable.gen_durable n WHERE n.parent_id = $1 AND n.status = 'awaiting_children' AND n.visit = 0
		AND n.wake_done > 0 AND (n.join_done, n.join_size) <> (SELECT count(*) FILTER (WHERE f.status = 'done'), count(*) FILTER (WHERE f.joined IS NULL)
			FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id WHERE e.to_id = n.id AND e.needs = 3)`, root))
	require.Empty(b.t, b.column(`SELECT node FROM gendurable.gen_durable WHERE parent_id = $1 AND (status IN ('done', 'failed')) <> (joined IS NOT NULL)`, root))
}

// A node that has begun goes on, also if nodes before it are restarted, though it has neither an
// attempt nor another visit: it has asked to run again, or was given back while its step ran. A
// claim that was given back before that does not count. Nor does a graph that is over keep it from
// going on.
func TestRestartLeavesWhatHasBegun(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		begins func(c *step.Claim)
		begun  bool
	}{
		"claimed only": {func(c *step.Claim) { b.release(c) }, false},
		"released as its step ran": {func(c *step.Claim) {
			c.Begun = true
			b.release(c)
		}, true},
		"again": {func(c *step.Claim) {
			b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Again}})
		}, true},
		"again, then claimed only": {func(c *step.Claim) {
			b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Again}})
			b.release(b.claimOne())
		}, true},
		"gave way": {func(c *step.Claim) {
			b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Again, Unbegun: true}})
		}, false},
		"gave way twice, by the slow lane": {func(c *step.Claim) {
			b.commit(newMark(), true, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Again, Unbegun: true}})
			b.commit(newMark(), true, store.Entry{Claim: b.claimOne(), Commit: &step.Commit{Kind: step.Again, Unbegun: true}})
		}, false},
		"again, then gave way": {func(c *step.Claim) {
			b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Again}})
			b.commit(newMark(), false, store.Entry{Claim: b.claimOne(), Commit: &step.Commit{Kind: step.Again, Unbegun: true}})
		}, true},
		"released as its step ran, then gave way": {func(c *step.Claim) {
			c.Begun = true
			b.release(c)
			b.commit(newMark(), false, store.Entry{Claim: b.claimOne(), Commit: &step.Commit{Kind: step.Again, Unbegun: true}})
		}, true},
		"retry": {func(c *step.Claim) {
			b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Retry}})
		}, true},
	} {
		root, ids := b.arrange("z a b<a!", nil)
		_, _, held := b.drive(root, "a", "zb")
		require.Len(t, held, 2, name)
		node := held[slices.IndexFunc(held, func(c *step.Claim) bool { return c.Node == "b" })]
		require.NoError(t, b.Feed(t.Context(), []*step.Claim{node}, 1<<20))
		require.Empty(t, node.Skip, name)
		c.begins(node)
		require.Empty(t, b.restart(ids["a"]).Refused, name)
		require.Equal(t, c.begun, b.status(ids["b"]) == "runnable", name)
		b.exact(root)
		if !c.begun { // what runs and fails then waits anew behind the next restart
			ran, _, _ := b.drive(root, "ab", "z")
			require.Equal(t, "ab", ran, name)
			require.Empty(t, b.restart(ids["a"]).Refused, name)
			require.Equal(t, "failed", b.status(ids["b"]), name)
			require.Empty(t, b.restart(root).Refused, name)
			require.Equal(t, "awaiting_children", b.status(ids["b"]), name)
		} else {
			b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE id = $1`, root)
			for _, claimed := range b.claim().Claims {
				require.NoError(t, b.Feed(t.Context(), []*step.Claim{claimed}, 1<<20))
				require.Equal(t, claimed.Node != "b", claimed.Skip != "", "%s: %s", name, claimed.Node)
			}
		}
		b.exec(`DELETE FROM gendurable.edges`)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// A node that gives way bears no mark, by which its commit would find what comes next under its
// partition key: it reports the key.
func TestANodeThatGivesWayLeavesItsKey(t *testing.T) {
	b := newBench(t)
	_, ids := b.arrange("a", nil)
	b.exec(`UPDATE gendurable.gen_durable SET partition_key = 'k' WHERE id = $1`, ids["a"])
	node := b.claimOne()
	next := b.ofKey("k", 8, columns{"pick_lane": `1`})
	got := b.commit(newMark(), false, store.Entry{Claim: node, Commit: &step.Commit{Kind: step.Again, Delay: time.Hour, Unbegun: true}})
	require.True(t, got.Applied[node.ID])
	require.Equal(t, []string{"k"}, got.Missed)
	p, err := b.Promote(t.Context(), got.Missed)
	require.NoError(t, err)
	require.Equal(t, store.Promotion{Queues: []string{"default"}}, p)
	require.Equal(t, next, b.claimOne().ID)
}

func (b bench) release(c *step.Claim) {
	b.t.Helper()
	got, err := b.Release(b.t.Context(), me, []*step.Claim{c})
	require.NoError(b.t, err)
	require.Equal(b.t, 1, got.Claims)
}

// Each row runs a graph whose nodes in fails fail, while those in holds execute, restarts the root
// or a node, and looks at what waits and runs then. In the end everything is done.
func TestRestart(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ graph, fails, holds, of, restarted, ran, want string }{
		// The graph still runs, as z executes.
		{"z a b<a c<b", "a", "z", "", "a runnable, b awaiting_children, c awaiting_children", "abc", ""},
		{"z a b<a c<b", "a", "z", "a", "a runnable, b awaiting_children, c awaiting_children", "abc", ""},
		{"z a b c<a,b", "ab", "z", "a", "a runnable, b failed, c skipped", "a", "a done, b failed, c skipped"},
		{"z a b c<a,b", "ab", "z", "", "a runnable, b runnable, c awaiting_children", "abc", ""},
		{"z a b<a! c<b", "a", "z", "", "a runnable, b done, c done", "a", ""},
		{"z a b<a! c<b,z", "a", "z", "a", "a runnable, b done, c awaiting_children", "a", ""},
		{"z a b<a? c<a", "a", "zb", "a", "a runnable, b executing, c awaiting_children", "ac", ""},
		{"z a b<a?,z c<b", "a", "z", "a", "a runnable, b awaiting_children, c awaiting_children", "a", ""},
		{"z a b<a! c<a", "", "z", "", "", "", ""}, // b is skipped, and c done: nothing failed
		{"z a b c<a! d<c,b", "b", "z", "", "a done, b runnable, c skipped, d skipped", "b", "a done, b done, c skipped, d skipped"},
		{"z b<a a c<b d<b!", "b", "z", "b", "a done, b runnable, c awaiting_children, d done", "bc", ""},
		{"z a b c<a*,b*,1 d<c", "ab", "z", "", "a runnable, b runnable, c awaiting_children, d awaiting_children", "abcd", ""},
		{"z a b c<a*,b*,1 d<c", "ab", "z", "b", "a failed, b runnable, c awaiting_children, d awaiting_children", "bcd", "a failed, b done, c done, d done"},
		{"z a b c<a*,b*,2 d<c", "ab", "z", "b", "a failed, b runnable, c skipped, d skipped", "b", "a failed, b done, c skipped, d skipped"},
		{"z a b c<a*,b*,z*,2", "a", "z", "a", "a runnable, b done, c awaiting_children", "ac", ""},
		{"z a b c<a*,b*,1,z", "a", "z", "a", "a runnable, b done, c awaiting_children", "a", ""},
		// Its root has failed.
		{"a b<a c<b d", "a", "", "", "a runnable, b awaiting_children, c awaiting_children, d done", "abc", ""},
		{"a b<a! c<b!", "a", "", "", "a runnable, b done, c skipped", "a", "a done, b done, c skipped"},
		{"a b<a! c<b!", "ab", "", "", "a runnable, b awaiting_children, c done", "a", "a done, b skipped, c done"},
		{"a b c<a?,b?", "c", "", "", "a done, b done, c runnable", "c", ""},
		{"a b<a", "", "", "", "", "", ""}, // the root itself has failed, and runs again
	} {
		name := fmt.Sprintf("%s, fails %s, holds %s, restart of %s", c.graph, c.fails, c.holds, c.of)
		root, ids := b.arrange(c.graph, nil)
		_, woken, held := b.drive(root, c.fails, c.holds)
		if woken != nil {
			b.commit(newMark(), false, endOf(woken, false))
		}
		id := root
		if c.of != "" {
			id = ids[c.of]
		}
		got := b.restart(id)
		switch {
		case c.restarted != "":
			require.Empty(t, got.Refused, name)
			require.Equal(t, c.restarted, strings.TrimSuffix(b.states(root), ", z executing"), name)
			b.exact(root)
			ran, again, _ := b.drive(root, "", "")
			require.Equal(t, c.ran, ran, name)
			if c.holds != "" {
				require.Nil(t, again, name)
				b.exact(root)
				for _, h := range held {
					b.commit(newMark(), false, endOf(h, true))
				}
				_, again, _ = b.drive(root, "", "")
			}
			require.NotNil(t, again, "%s: the root sleeps: %s", name, b.states(root))
			if c.want == "" {
				require.NotContains(t, b.states(root), "failed", name)
			} else {
				require.Equal(t, c.want, strings.TrimSuffix(b.states(root), ", z done"), name)
			}
			b.commit(newMark(), false, store.Entry{Claim: again, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)}})
		case c.holds != "":
			require.ErrorIs(t, got.Refused[0].Why, store.ErrNothingFailed, name)
		default:
			require.Equal(t, "runnable", b.status(root), name)
		}
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
}

// A node that is about to be skipped waits again. A claim that an operator has ended is void: its
// worker neither runs a step of the node nor ends it.
func TestRestartOfWhatIsAboutToBeSkipped(t *testing.T) {
	b := newBench(t)
	root, _ := b.arrange("a b<a c<a d<b", nil)
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	require.Empty(t, b.claim().Claims)
	require.Equal(t, "a failed, b runnable, c runnable, d awaiting_children", b.states(root))
	require.Len(t, b.restart(root).Changed, 4, "the root, a, b and c")
	require.Equal(t, "a runnable, b awaiting_children, c awaiting_children, d awaiting_children", b.states(root))
	b.exact(root)
	ran, woken, _ := b.drive(root, "", "")
	require.Equal(t, "abcd", ran)
	require.NotNil(t, woken)

	_, ids := b.arrange("x", nil)
	claims := b.claim().Claims
	require.Len(t, claims, 1)
	b.operate(store.Order{Verb: store.Cancel}, ids["x"])
	require.NoError(t, b.Feed(t.Context(), claims, 1<<20))
	require.Equal(t, "skipped: its claim is void", claims[0].Skip)
	done, err := b.Commit(t.Context(), me, newMark(), []store.Entry{b.endNode(claims[0], true)}, patient)
	require.NoError(t, err)
	require.Empty(t, done.Applied)
}

// A restart that cannot be says why, and changes nothing.
func TestRestartIsRefused(t *testing.T) {
	b := newBench(t)
	refused := func(id int64, want error) {
		t.Helper()
		before := b.column(`SELECT g::text FROM gendurable.gen_durable g ORDER BY id`)
		got := b.restart(id)
		require.Len(t, got.Refused, 1)
		require.ErrorIs(t, got.Refused[0].Why, want)
		require.Empty(t, got.Changed)
		require.Equal(t, before, b.column(`SELECT g::text FROM gendurable.gen_durable g ORDER BY id`))
	}
	root, ids := b.arrange("a b c<a", &step.Join{Failed: 1})
	_, woken, _ := b.drive(root, "a", "b")
	require.NotNil(t, woken, "fail-fast")
	refused(ids["a"], store.ErrWoken)
	refused(root, store.ErrWoken)
	refused(ids["b"], store.ErrApplies)
	refused(999_999, store.ErrGone)
	b.commit(newMark(), false, endOf(woken, false))
	refused(ids["a"], store.ErrWoken)
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, ids["b"])
	refused(root, store.ErrPruned)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'done', failure = NULL WHERE id = $1`, root)
	refused(root, store.ErrApplies)

	root, ids = b.arrange("z a b<a c<z", nil)
	b.drive(root, "a", "z")
	refused(ids["b"], store.ErrSkipped)
	refused(ids["c"], store.ErrNothingFailed)
	b.exec(`UPDATE gendurable.gen_durable SET losers = ARRAY[-round] WHERE id = $1`, root)
	refused(ids["a"], store.ErrResting)
	refused(root, store.ErrResting)
	b.exec(`UPDATE gendurable.gen_durable SET losers = NULL WHERE id = $1`, root)

	_, err := b.Operate(t.Context(), []int64{root}, &store.Order{Verb: store.Restart, Mark: newMark(), Most: 2})
	var many *store.TooManyError
	require.ErrorAs(t, err, &many)
	require.Equal(t, 2, many.Most)
	require.Equal(t, "failed", b.status(ids["a"]))
}

// A restart goes down to the failed instances beneath a node: it waits for its children again, and
// these run again.
func TestRestartGoesDown(t *testing.T) {
	b := newBench(t)
	root, _ := b.arrange("a b<a", nil)
	a := b.claimOne()
	pieces := kids(3)
	for i := range pieces {
		pieces[i].Machine, pieces[i].Queue = "m", "default"
	}
	b.commit(newMark(), false, spawnOf(a, pieces))
	for i, c := range b.claim().Claims {
		b.commit(newMark(), false, endOf(c, i == 0))
	}
	a = b.claimOne()
	require.Equal(t, "a", a.Node)
	b.commit(newMark(), false, endOf(a, false))
	_, woken, _ := b.drive(root, "", "")
	require.NotNil(t, woken)
	b.commit(newMark(), false, endOf(woken, false))

	require.Len(t, b.restart(root).Changed, 5, "the root, both nodes, two pieces")
	require.Equal(t, "a awaiting_children, b awaiting_children", b.states(root))
	b.exact(root)
	again := b.claim().Claims
	require.Len(t, again, 2)
	require.Equal(t, 2, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, a.ID))

	// The restart of a piece lets its parent wait for that one.
	b.commit(newMark(), false, endOf(again[0], false))
	require.Len(t, b.restart(again[0].ID).Changed, 1)
	require.Equal(t, 2, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, a.ID))
	b.commit(newMark(), false, endOf(again[1], true), endOf(b.claimOne(), true))
	ran, woken, _ := b.drive(root, "", "")
	require.Equal(t, "ab", ran, "a joins")
	require.NotNil(t, woken)
}

// A graph whose root has failed early waits for all of its nodes once it is restarted, and cancels
// what runs when it ends again. The nodes that were cancelled with it run again, too.
func TestRestartOfAnEndedGraph(t *testing.T) {
	b := newBench(t)
	root, ids := b.arrange("a b c<b d<c", &step.Join{Failed: 1, Cancel: true})
	_, woken, _ := b.drive(root, "a", "b")
	require.NotNil(t, woken)
	_, err := b.CancelRest(t.Context(), newMark(), 0, 2)
	require.NoError(t, err)
	b.commit(newMark(), false, endOf(woken, false))
	require.Len(t, b.restart(root).Changed, 4, "the root, a, and the two that are cancelled")
	b.exact(root)
	rest, err := b.CancelRest(t.Context(), newMark(), 0, 100)
	require.NoError(t, err)
	require.Empty(t, rest.Cancelled, "the root waits for d again")
	_, woken, _ = b.drive(root, "a", "b")
	require.Nil(t, woken, "it waits for all: it fails fast no more")
	b.operate(store.Order{Verb: store.Cancel}, root)
	rest, err = b.CancelRest(t.Context(), newMark(), 0, 100)
	require.NoError(t, err)
	require.Len(t, rest.Cancelled, 3)
	require.Equal(t, "cancelled", b.text(`SELECT failure FROM gendurable.gen_durable WHERE id = $1`, ids["b"]))
	require.Len(t, b.restart(root).Changed, 5)
	b.exact(root)
	ran, woken, _ := b.drive(root, "", "")
	require.Equal(t, "abcd", ran)
	require.NotNil(t, woken)
}

// The key of an instance that runs again may be occupied; the error names the occupant.
func TestRestartOfAnOccupiedKey(t *testing.T) {
	b := newBench(t)
	root, ids := b.arrange("a b", nil)
	b.drive(root, "ab", "")
	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'decided', finished_at = now(), locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, root)
	b.exec(`UPDATE gendurable.gen_durable SET correlation_key = 'k', correlation_scope = `+liveScope+` WHERE id = $1`, ids["b"])
	other := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "correlation_key": `'k'`, "correlation_scope": liveScope})
	_, err := b.Operate(t.Context(), []int64{root}, &store.Order{Verb: store.Restart, Mark: newMark(), Most: 10})
	var taken *store.OccupiedError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, other, taken.Occupant)
	require.Equal(t, "a failed, b failed", b.states(root))
}

// Two that would run again have one key: the second was inserted when the first had failed.
func TestRestartOfTwoWithOneKey(t *testing.T) {
	b := newBench(t)
	root, ids := b.arrange("a b", nil)
	b.drive(root, "ab", "")
	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'decided', finished_at = now(), locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, root)
	b.exec(`UPDATE gendurable.gen_durable SET correlation_key = 'k', correlation_scope = `+liveScope+` WHERE id IN ($1, $2)`, ids["a"], ids["b"])
	_, err := b.Operate(t.Context(), []int64{root}, &store.Order{Verb: store.Restart, Mark: newMark(), Most: 10})
	var taken *store.OccupiedError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, store.OccupiedError{Key: "k", Occupant: ids["a"]}, *taken)
	require.Equal(t, "a failed, b failed", b.states(root))
}

// Workers end the nodes of random graphs, some of which fail or are cancelled, while operators
// restart them. The root wakes once for each time that it waits, each count is exact, and in the
// end, when nothing fails any more, everything is done that is not skipped by a node that is done.
func TestConcurrentRestarts(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // not a secret
	restarted := 0
	for round := range 12 {
		var words []string
		for i := range 2 + rng.IntN(20) {
			var before []string
			members := 0
			for j := range i {
				switch rng.IntN(max(i+1, 5)) {
				case 0, 1:
					before = append(before, fmt.Sprint("n", j, []string{"", "?", "!"}[max(0, rng.IntN(6)-3)]))
				case 2:
					members++
					before = append(before, fmt.Sprint("n", j, "*"))
				}
			}
			if members > 0 {
				before = append(before, fmt.Sprint(1+rng.IntN(members)))
			}
			words = append(words, fmt.Sprintf("n%d<%s", i, strings.Join(before, ",")))
		}
		root, ids := b.arrange(strings.Join(words, " "), nil)
		all := append(slices.Sorted(maps.Values(ids)), root)
		var working sync.WaitGroup
		errs := make(chan error, 3)
		for w := range 2 {
			own := rand.New(rand.NewPCG(uint64(round), uint64(w))) //nolint:gosec // not a secret
			working.Go(func() { errs <- b.runNodes(root, own, 4) })
		}
		working.Go(func() {
			own := rand.New(rand.NewPCG(uint64(round), 9)) //nolint:gosec // not a secret
			var err error
			for range 25 {
				o := store.Order{Verb: store.Restart, Mark: newMark(), Most: 100}
				id := all[own.IntN(len(all))]
				if own.IntN(6) == 0 && id != root {
					o.Verb = store.Cancel
				}
				var done store.Operated
				if done, err = b.Operate(t.Context(), []int64{id}, &o); err != nil && store.Classify(err) != store.FaultTransient {
					break
				}
				if o.Verb == store.Restart {
					restarted += len(done.Changed)
				}
				err = nil
			}
			errs <- err
		})
		working.Wait()
		for range 3 {
			require.NoError(t, <-errs)
		}
		// The root executes now, or is runnable, or waits for what an operator has restarted last.
		if b.status(root) == "awaiting_children" {
			b.exact(root)
			require.NoError(t, b.runNodes(root, rng, 4))
		}
		require.Contains(t, []string{"runnable", "executing"}, b.status(root), "round %d: %s", round, b.states(root))
		require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND finished_at IS NULL`, root))
		b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'decided', finished_at = now(), locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, root)
		require.Empty(t, b.restart(root).Refused)
		if b.status(root) == "awaiting_children" {
			b.exact(root)
			require.NoError(t, b.runNodes(root, rng, 0))
		}
		require.Empty(t, b.column(`SELECT n.node FROM gendurable.gen_durable n WHERE n.parent_id = $1 AND n.status <> 'done' AND NOT EXISTS (
			SELECT FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
			WHERE e.to_id = n.id AND e.needs < 3 AND NOT (e.needs = 1 OR (e.needs = 0) = (f.status = 'done')))
			AND (n.wake_done IS NULL OR n.wake_done <= (SELECT count(*) FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
				WHERE e.to_id = n.id AND e.needs = 3 AND f.status = 'done'))`, root), "round %d: %s", round, b.states(root))
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
	t.Logf("%d restarted beside workers", restarted)
	require.Positive(t, restarted)
}

// A restart of a node costs what it changes, however large the graph is.
func TestRestartCostsWhatItChanges(t *testing.T) {
	b := newBench(t)
	b.exec(`ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = off)`)
	b.exec(`ALTER TABLE gendurable.edges SET (autovacuum_enabled = off)`)
	large, _ := b.layered(5000)
	small, _ := b.layered(5)
	b.exec(`ANALYZE gendurable.gen_durable, gendurable.edges`)
	e := b.explained("")
	buffers := func(c *step.Claim) int {
		e.commit(newMark(), false, endOf(c, false))
		e.unwatched("a restart")
		e.cost()
		got, err := e.Operate(t.Context(), []int64{c.ID}, &store.Order{Verb: store.Restart, Mark: newMark(), Most: 100})
		require.NoError(t, err)
		require.Len(t, got.Changed, 1)
		return e.cost().buffers
	}
	buffers(small[0])
	inSmall, inLarge := buffers(small[1]), buffers(large[1])
	t.Logf("a restart of a node of %d touches %d buffers, of %d %d", 2*len(small), inSmall, 2*len(large), inLarge)
	require.LessOrEqual(t, float64(inLarge), 1.3*float64(inSmall))

	// A whole graph of 10,000 nodes is one transaction.
	root, failed := large[0].Parent, b.number(`WITH f AS (UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now(),
		joined = gen_random_uuid(), locked_by = NULL, lease_expires_at = NULL WHERE parent_id = $1 AND node LIKE 'a%' RETURNING 1),
		p AS (UPDATE gendurable.gen_durable SET status = 'failed', failure = 'skipped', join_failed = 1, finished_at = now(), joined = gen_random_uuid()
			WHERE parent_id = $1 AND node LIKE 'b%' RETURNING 1),
		r AS (UPDATE gendurable.gen_durable SET status = 'failed', failure = 'decided', finished_at = now() WHERE id = $1)
		SELECT (SELECT count(*) FROM f) + (SELECT count(*) FROM p)`, large[0].Parent)
	b.exec(`UPDATE gendurable.edges SET needs = 0`)
	begun := time.Now()
	e.cost()
	got, err := e.Operate(t.Context(), []int64{root}, &store.Order{Verb: store.Restart, Mark: newMark(), Most: 100_000})
	require.NoError(t, err)
	require.Len(t, got.Changed, failed+1)
	t.Logf("a restart of %d nodes touches %d buffers and takes %v", failed, e.cost().buffers, time.Since(begun).Round(time.Millisecond))
	b.exact(root)
}
