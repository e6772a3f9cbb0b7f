package store_test

import (
	"errors"
	"fmt"
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

// adding lets an outcome add nodes. The words are as for graphOf, with the nodes that are to wait
// for it at the end: "x<a>b,c?".
func adding(e store.Entry, text string) store.Entry {
	words := strings.Fields(text)
	a := &step.Additions{Most: 100, Specs: kids(len(words))}
	at := map[string]int{}
	place := func(name string) int {
		i, known := at[name]
		if !known {
			i = len(a.Graph.Nodes)
			at[name], a.Graph.Nodes = i, append(a.Graph.Nodes, name)
		}
		return i
	}
	for i, word := range words {
		a.Specs[i].Machine, a.Specs[i].Queue = "m", "default"
		place(word[:strings.IndexAny(word+"<", "<>")])
	}
	for i, word := range words {
		word, ahead, _ := strings.Cut(word, ">")
		_, before, _ := strings.Cut(word, "<")
		for _, name := range strings.FieldsFunc(before, func(r rune) bool { return r == ',' }) {
			if name >= "1" && name <= "9" {
				if a.Graph.Quorum == nil {
					a.Graph.Quorum = make([]int, len(words))
				}
				a.Graph.Quorum[i] = int(name[0] - '0')
				continue
			}
			a.Graph.Edges = append(a.Graph.Edges, step.Edge{From: place(strings.TrimRight(name, "?!*")), To: i, Needs: needOf(name)})
		}
		for _, name := range strings.FieldsFunc(ahead, func(r rune) bool { return r == ',' }) {
			a.Graph.Edges = append(a.Graph.Edges, step.Edge{From: i, To: place(strings.TrimRight(name, "?!*")), Needs: needOf(name)})
		}
	}
	e.Commit.Add = a
	return e
}

func needOf(name string) step.Need {
	return map[byte]step.Need{'?': step.NeedsEnd, '!': step.NeedsFailed, '*': step.NeedsAny}[name[len(name)-1]]
}

// Each row runs a graph in which node a adds nodes in the commit that ends it, after the nodes in
// first have ended. fails fail.
func TestAdditionsJoinTheGraph(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ graph, first, fails, adds, want string }{
		{"a", "", "", "x", "a done, x done"},
		{"a", "", "a", "x", "a failed, x done"},
		{"a", "", "", "x<a y<x z<x,y", "a done, x done, y done, z done"},
		{"a", "", "a", "x<a y<a!", "a failed, x skipped, y done"},
		{"a b<a", "", "", "x>b", "a done, b done, x done"},
		{"a b<a", "", "x", "x>b y>b?", "a done, b skipped, x failed, y done"},
		{"a b<a", "", "x", "x>b? y<x>b", "a done, b skipped, x failed, y skipped"},
		{"a b", "b", "", "x<b y<b!", "a done, b done, x done, y skipped"},
		{"a b", "b", "b", "x<b,a y<b?,a? z<b!", "a done, b failed, x skipped, y done, z done"},
		{"a b c d", "bc", "c", "x<b*,c*,d*,2 y<c*,d*,2 z<b*,a*,1", "a done, b done, c failed, d done, x done, y skipped, z done"},
		{"a b c<b d<a", "b", "", "x<c>d", "a done, b done, c done, d done, x done"},
		{"a b<a", "", "a", "x>b", "a failed, b skipped, x done"},
		{"a b c<b,a", "b", "b", "x>c", "a done, b failed, c skipped, x done"}, // what is about to be skipped stays as it is
		{"a b<a c", "c", "", "c>b x<c", "a done, b done, c done, x done"},     // c is there: its Before counts
		{"a b<a c", "c", "c", "c>b x", "a done, b skipped, c failed, x done"},
		{"a b<a c", "c", "c", "c<b>b? x", "a done, b done, c failed, x done"}, // but nothing that it would wait for
	} {
		root, ids := b.graph(c.graph)
		held := map[string]*step.Claim{}
		ran := map[int64]int{}
		for woken := false; !woken; {
			require.Equal(t, "awaiting_children", b.status(root), c)
			for _, claim := range b.claim().Claims {
				ran[claim.ID]++
				held[claim.Node] = claim
			}
			var names []string
			for name := range held {
				names = append(names, name)
			}
			slices.Sort(names)
			slices.SortStableFunc(names, func(x, y string) int { // first those in first, then a
				rank := func(n string) int {
					switch {
					case strings.Contains(c.first, n):
						return 0
					case n == "a":
						return 1
					}
					return 2
				}
				return rank(x) - rank(y)
			})
			require.NotEmpty(t, names, "%v: nothing is left to run: %s", c, b.states(root))
			e := b.endNode(held[names[0]], !strings.Contains(c.fails, names[0]))
			delete(held, names[0])
			if names[0] == "a" {
				e = adding(e, c.adds)
			}
			b.commit(newMark(), len(names)%2 == 0, e)
			b.skip()
			woken = b.status(root) == "runnable"
		}
		require.Equal(t, c.want, b.states(root), "%v", c)
		for id, n := range ran {
			require.Equal(t, 1, n, "%v: node %d", c, id)
		}
		require.NotEmpty(t, ids)
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
}

// A decision that runs again, after a restart maybe, leads its edges anew. One that is there
// already has had its effect, also where the node to which it leads has begun; any other edge to
// such a node is refused.
func TestAdditionsThatAreThereAlready(t *testing.T) {
	b := newBench(t)
	for graph, fits := range map[string]bool{"a x b<x": true, "a x b": false} {
		root, ids := b.graph(graph)
		claims := map[string]*step.Claim{}
		for _, c := range b.claim().Claims {
			claims[c.Node] = c
		}
		b.commit(newMark(), false, endOf(claims["x"], true))
		b.claim()
		require.Contains(t, b.states(root), "b executing")
		got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(claims["a"], true), "x>b y<x")}, 0)
		if !fits {
			refused, ok := errors.AsType[*step.AddError](err)
			require.True(t, ok, "%v", err)
			require.ErrorContains(t, refused, `node "b" has begun`)
			continue
		}
		require.NoError(t, err)
		require.True(t, got.Applied[claims["a"].ID])
		require.Equal(t, "a done, b executing, x done, y runnable", b.states(root))
		require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.edges WHERE to_id = $1`, ids["b"]))
	}
}

// A node that has begun waits for nothing, and yet lies behind what a restart lets run again: a
// cycle through it is refused, since the next restart would let all of it wait for itself.
func TestAdditionsBehindWhatRunsAgain(t *testing.T) {
	b := newBench(t)
	root, _ := b.arrange("z a b<a c<b!", nil)
	_, _, held := b.drive(root, "a", "zc")
	require.Len(t, held, 2)
	c := held[slices.IndexFunc(held, func(one *step.Claim) bool { return one.Node == "c" })]
	require.Empty(t, b.restart(root).Refused)
	require.Equal(t, "a runnable, b awaiting_children, c executing, z executing", b.states(root))
	for _, adds := range []string{"y<c>b", "x<c y<x>b"} {
		_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(c, true), adds)}, 0)
		refused, ok := errors.AsType[*step.AddError](err)
		require.True(t, ok, "%s: %v", adds, err)
		require.ErrorContains(t, refused, "cycle: ")
	}
	b.commit(newMark(), false, adding(endOf(c, true), "x<c y>b"))
	require.Equal(t, "a runnable, b awaiting_children, c done, x runnable, y runnable, z executing", b.states(root))
	b.exact(root)
}

// Additions that do not fit are refused with their field, and nothing of the outcome is committed.
func TestAdditionsThatDoNotFit(t *testing.T) {
	b := newBench(t)
	root, ids := b.graph("a b c<b d<c e<a f<d f2 done")
	b.exec(`UPDATE gendurable.gen_durable SET join_round = round, join_size = 8, join_done = 0, join_failed = 0 WHERE id = $1`, root)
	claims := map[string]*step.Claim{}
	for _, c := range b.claim().Claims {
		claims[c.Node] = c
	}
	b.commit(newMark(), false, endOf(claims["done"], true))
	most := strings.Repeat("n%d ", 94)
	var many []any
	for i := range 94 {
		many = append(many, i)
	}
	for adds, want := range map[string]string{
		"x<q":                      `add[0].after: node "q" is not in the graph`,
		"x y>q":                    `add[1].before: node "q" is not in the graph`,
		"x>b":                      `add[0].before: node "b" has begun`,
		"x>done":                   `add[0].before: node "done" has begun`,
		"x<d>c":                    `add: cycle: `,
		"x<f y<x z<y>c":            `add: cycle: `,
		"d>c":                      `add: cycle: `,
		fmt.Sprintf(most, many...): `add: 94 new nodes beside the graph's 8, at most 100 in all`,
	} {
		for _, slow := range []bool{false, true} {
			wait := time.Duration(0)
			if slow {
				wait = time.Second
			}
			_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(claims["a"], true), adds)}, wait)
			require.ErrorContains(t, err, want, adds)
			bad, ok := errors.AsType[*step.AddError](err)
			require.True(t, ok)
			require.Equal(t, store.FaultData, store.Classify(err))
			if strings.Contains(want, "cycle") {
				path := strings.Split(strings.TrimPrefix(bad.Err.Error(), "cycle: "), " → ")
				require.Equal(t, path[0], path[len(path)-1])
				require.Contains(t, path, "c")
			}
		}
	}
	e := adding(endOf(claims["a"], true), "b")
	e.Commit.Add.Specs[0].Machine = "another"
	_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{e}, 0)
	require.ErrorContains(t, err, `add[0].name: "b" is the name of a node of machine "m": give the new node another`)
	require.Equal(t, ids, b.nodes(root))
	require.Equal(t, "a executing, b executing, c awaiting_children, d awaiting_children, done done, e awaiting_children, f awaiting_children, f2 executing", b.states(root))
	b.commit(newMark(), false, adding(endOf(claims["a"], true), "x<b>d"))
	require.Equal(t, "runnable", b.status(ids["e"]))
	require.Equal(t, 2, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, ids["d"]))
	require.Equal(t, 9, b.number(`SELECT join_size FROM gendurable.gen_durable WHERE id = $1`, root))
}

// Additions are there with the outcome, or not at all, and not where the graph is over.
func TestAdditionsAreAllOrNothing(t *testing.T) {
	b := newBench(t)
	root, ids := b.graph("a b<a")
	a := b.claimOne()
	a.Visit++
	got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(a, true), "x>b")}, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied, "it is stale")
	require.Equal(t, ids, b.nodes(root))
	require.Equal(t, 1, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, ids["b"]))
	require.Equal(t, 2, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, root))
	a.Visit--

	// Another session holds the root: the fast lane leaves the outcome to the slow one.
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, root)
	_, err = b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(a, true), "x>b")}, 0)
	require.True(t, store.IsLockTimeout(err), err)
	require.NoError(t, stranger.Rollback(t.Context()))

	// In several messages, with its own retention, by a visit that goes on.
	next := adding(store.Entry{Claim: a, Commit: &step.Commit{Kind: step.Next, Step: "t", State: []byte(`{}`)}}, "x<a>b y<x")
	for i := range next.Commit.Add.Specs {
		next.Commit.Add.Specs[i].State = []byte(`"` + strings.Repeat("x", 9<<20) + `"`)
	}
	next.Commit.Add.Specs[1].Retain = step.Retain{Done: time.Hour}
	b.commit(newMark(), false, next)
	require.Equal(t, "a runnable, b awaiting_children, x awaiting_children, y awaiting_children", b.states(root))
	require.Equal(t, []string{"2", "1", "1"}, b.column(`SELECT children_pending::text FROM gendurable.gen_durable WHERE parent_id = $1 AND node <> 'a' ORDER BY node`, root))
	require.Equal(t, 4, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, root))
	require.Equal(t, []string{"1"}, b.column(`SELECT DISTINCT depth::text FROM gendurable.gen_durable WHERE parent_id = $1`, root))

	a = b.claimOne()
	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE id = $1`, root)
	got, err = b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(a, true), "z")}, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied, "its root has ended")
	require.Equal(t, "a cancelled, b runnable, x runnable, y awaiting_children", b.states(root))
}

// Workers end the nodes of random graphs side by side; some add nodes that wait for others, and for
// which others wait. Each graph comes to its end, and no node runs before what it waits for.
func TestConcurrentAdditions(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // not a secret
	refused, added := 0, 0
	for round := range 10 {
		n := 3 + rng.IntN(12)
		var words []string
		for i := range n {
			var before []string
			for j := range i {
				if rng.IntN(i+1) < 2 {
					before = append(before, fmt.Sprint("n", j, []string{"", "?"}[rng.IntN(2)]))
				}
			}
			words = append(words, fmt.Sprintf("n%d<%s", i, strings.Join(before, ",")))
		}
		root, _ := b.graph(strings.Join(words, " "))
		var working sync.WaitGroup
		var mu sync.Mutex
		errs := make(chan error, 3)
		for w := range 3 {
			own := rand.New(rand.NewPCG(uint64(round), uint64(w))) //nolint:gosec // not a secret
			grow := func(c *step.Claim, e store.Entry) store.Entry {
				mu.Lock()
				defer mu.Unlock()
				if e.Commit.Failure == "skipped" || own.IntN(2) == 0 || strings.Count(c.Node, ".") > 1 {
					return e
				}
				text := fmt.Sprintf("%[1]s.x<%[1]s? %[1]s.y<%[1]s.x?", c.Node)
				if other := fmt.Sprint("n", own.IntN(n)); other != c.Node {
					text += fmt.Sprintf(" %s.z<%s?", c.Node, other)
				}
				if own.IntN(2) == 0 {
					text += fmt.Sprintf(">n%d?", own.IntN(n))
				}
				added++
				return adding(e, text)
			}
			working.Go(func() {
				errs <- b.runGrowing(root, grow, func() { mu.Lock(); refused++; mu.Unlock() })
			})
		}
		working.Wait()
		for range 3 {
			require.NoError(t, <-errs)
		}
		require.Contains(t, []string{"runnable", "executing"}, b.status(root), "round %d: %s", round, b.states(root))
		require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND finished_at IS NULL`, root), b.states(root))
		require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable g JOIN gendurable.edges e ON e.to_id = g.id
			JOIN gendurable.gen_durable f ON f.id = e.from_id WHERE g.finished_at < f.finished_at AND g.failure IS DISTINCT FROM 'skipped'`), "a node before what it waits for")
		b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, root)
	}
	t.Logf("%d outcomes added nodes, of which %d were refused", added, refused)
	require.Positive(t, refused)
	require.Greater(t, added, refused)
}

// runGrowing claims and ends nodes until the root goes on. An end that is refused for its additions
// comes again without them.
func (b bench) runGrowing(root int64, grow func(*step.Claim, store.Entry) store.Entry, refused func()) error {
	ctx := b.t.Context()
	for range 10_000 {
		var left int
		if err := b.pool.QueryRow(ctx, byHand(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`), root).Scan(&left); err != nil || left == 0 {
			return err
		}
		if _, err := b.skipAll(ctx, 3); err != nil && store.Classify(err) != store.FaultTransient {
			return err
		}
		got, err := b.Claim(ctx, store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 1, Window: 1000, Lease: time.Hour})
		if err != nil && store.Classify(err) != store.FaultTransient {
			return err
		}
		for _, c := range got.Claims {
			if c.ID == root {
				return nil
			}
			if err := b.Feed(ctx, []*step.Claim{c}, 1<<20); err != nil {
				return err
			}
			e := endOf(c, true)
			if c.Skip != "" {
				e.Commit = &step.Commit{Kind: step.Fail, Err: c.Skip, Failure: "skipped"}
			}
			e = grow(c, e)
			for try := 0; ; try++ {
				done, err := b.Commit(ctx, me, newMark(), []store.Entry{e}, inLane(try > 0))
				if _, bad := errors.AsType[*step.AddError](err); bad {
					e.Commit.Add = nil
					refused()
					continue
				}
				if err != nil && store.Classify(err) != store.FaultTransient && !store.IsLockTimeout(err) {
					return err
				}
				if done.Applied[c.ID] {
					break
				}
				if try > 1000 {
					return fmt.Errorf("node %s never ends: %w", c.Node, err)
				}
			}
		}
	}
	return fmt.Errorf("root %d never wakes", root)
}

// growing returns the outcome of a node that adds n nodes, a chain behind it.
func (b bench) growing(n int) store.Entry {
	b.t.Helper()
	root, _ := b.graph("a b<a")
	c := &step.Claim{Step: "start", Queue: "default", Token: 7, Parent: root, ParentRound: 1, Depth: 1, Node: "a", ID: b.nodes(root)["a"]}
	b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = $2, claim_token = 7, lease_expires_at = now() + interval '1 hour'
		WHERE id = $1`, c.ID, me)
	words, before := []string{}, "a"
	for i := range n {
		words = append(words, fmt.Sprintf("n%d<%s", i, before))
		before = fmt.Sprint("n", i)
	}
	e := adding(endOf(c, true), strings.Join(words, " "))
	e.Commit.Add.Most = 1 << 20
	return e
}

// A node that ends while additions wait for the root's lock has ended for them: they look at the
// graph once they have it.
func TestAdditionsLookBehindTheRootsLock(t *testing.T) {
	b := newBench(t)
	root, ids := b.graph("a b c<a,b")
	claims := map[string]*step.Claim{}
	for _, c := range b.claim().Claims {
		claims[c.Node] = c
	}
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, root)
	result := make(chan error, 1)
	go func() {
		_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adding(endOf(claims["a"], true), "x<b>c y<b!")}, 20*time.Second)
		result <- err
	}()
	b.waiting(1)
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET status = 'done', joined = gen_random_uuid(), finished_at = now(), locked_by = NULL,
		lease_expires_at = NULL WHERE id = $1`, ids["b"])
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET children_pending = children_pending - 1 WHERE id = ANY($1)`, []int64{root, ids["c"]})
	require.NoError(t, stranger.Commit(t.Context()))
	require.NoError(t, <-result)
	require.Equal(t, "a done, b done, c awaiting_children, x runnable, y runnable", b.states(root))
	require.Equal(t, []string{"3 0", "1 0", "0 0", "0 1"}, b.column(`SELECT children_pending || coalesce(' ' || join_failed, '') FROM gendurable.gen_durable
		WHERE id = $1 OR node IN ('c', 'x', 'y') ORDER BY coalesce(node, '')`, root))
}

// Another session has the node locked that is to wait for the added one. The commit that adds gives
// up at once, and has locked nothing then: the other nodes of the graph end.
func TestAdditionsBehindAStrangerHoldUpNobody(t *testing.T) {
	b := newBench(t)
	root, ids := b.graph("a b c<a,b")
	claims := map[string]*step.Claim{}
	for _, c := range b.claim().Claims {
		claims[c.Node] = c
	}
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, ids["c"])
	adds := adding(endOf(claims["a"], true), "x>c")
	_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adds}, 0)
	require.True(t, store.IsLockTimeout(err), "%v", err)
	require.Equal(t, "a executing, b executing, c awaiting_children", b.states(root))
	require.NoError(t, stranger.Rollback(t.Context()))
	require.Len(t, b.commit(newMark(), false, endOf(claims["b"], true)).Applied, 1)
	require.Len(t, b.commit(newMark(), false, adds).Applied, 1)
	require.Equal(t, "a done, b done, c awaiting_children, x runnable", b.states(root))
}

// The COMMIT of additions gets no answer and takes effect late, when their worker has looked and
// tries again. Meanwhile the added node has ended, and the node that was to wait for it has begun.
// The second try is stale, and no error of the step's.
func TestAdditionsThatWereAppliedAreNoError(t *testing.T) {
	b := newBench(t)
	root, _ := b.graph("a b<a")
	a, mark := b.claimOne(), newMark()
	adds := adding(endOf(a, true), "x>b")
	require.Len(t, b.commit(mark, false, adds).Applied, 1)
	require.Len(t, b.commit(newMark(), false, endOf(b.claimOne(), true)).Applied, 1)
	require.Equal(t, "b", b.claimOne().Node)

	got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{adds}, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied)
	verdicts, err := b.Resolve(t.Context(), me, eachOf([]store.Entry{adds}, mark), []store.Entry{adds}, 0)
	require.NoError(t, err)
	require.Equal(t, map[int64]store.Verdict{a.ID: store.Mine}, verdicts)
	require.Equal(t, "a done, b executing, x done", b.states(root))
}
