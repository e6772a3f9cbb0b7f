package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// graphOf returns the outcome of a claim that makes a graph. Each word is a node with what it waits
// for: "c<a,b" needs both to be done, "c<a?" its end, "c<a!" its failure, "c<a*,b*,d*,2" two of
// three to be done.
func graphOf(c *step.Claim, text string) store.Entry {
	words := strings.Fields(text)
	g := &step.Graph{}
	for _, word := range words {
		name, _, _ := strings.Cut(word, "<")
		g.Nodes = append(g.Nodes, name)
	}
	for to, word := range words {
		_, before, _ := strings.Cut(word, "<")
		for _, from := range strings.FieldsFunc(before, func(r rune) bool { return r == ',' }) {
			if k, err := strconv.Atoi(from); err == nil {
				if g.Quorum == nil {
					g.Quorum = make([]int, len(words))
				}
				g.Quorum[to] = k
				continue
			}
			needs := step.NeedsDone
			switch {
			case strings.HasSuffix(from, "*"):
				needs = step.NeedsAny
			case strings.HasSuffix(from, "?"):
				needs = step.NeedsEnd
			case strings.HasSuffix(from, "!"):
				needs = step.NeedsFailed
			}
			g.Edges = append(g.Edges, step.Edge{From: slices.Index(g.Nodes, strings.TrimRight(from, "?!*")), To: to, Needs: needs})
		}
	}
	specs := kids(len(words))
	for i := range specs {
		specs[i].Machine, specs[i].Queue = "m", "default"
	}
	e := spawnOf(c, specs)
	e.Commit.Graph = g
	return e
}

// graph commits a graph, and returns its root and the ids of its nodes by name.
func (b bench) graph(text string) (root int64, ids map[string]int64) {
	b.t.Helper()
	c := b.executing(nil)
	b.commit(newMark(), false, graphOf(c, text))
	return c.ID, b.nodes(c.ID)
}

func (b bench) nodes(root int64) map[string]int64 {
	b.t.Helper()
	ids := map[string]int64{}
	rows, err := b.pool.Query(b.t.Context(), byHand(`SELECT node, id FROM gendurable.gen_durable WHERE parent_id = $1`), root)
	require.NoError(b.t, err)
	for rows.Next() {
		var name string
		var id int64
		require.NoError(b.t, rows.Scan(&name, &id))
		ids[name] = id
	}
	require.NoError(b.t, rows.Err())
	return ids
}

// states returns the status, or failure, of all nodes of a root, by name.
func (b bench) states(root int64) string {
	b.t.Helper()
	return strings.Join(b.column(`SELECT node || ' ' || coalesce(nullif(failure, 'decided'), status::text) FROM gendurable.gen_durable
		WHERE parent_id = $1 ORDER BY node COLLATE "C"`, root), ", ")
}

// endNode returns what a worker makes of a claimed node: its step's end, or that it is skipped.
func (b bench) endNode(c *step.Claim, done bool) store.Entry {
	b.t.Helper()
	require.NoError(b.t, b.Feed(b.t.Context(), []*step.Claim{c}, 1<<20))
	if c.Skip != "" {
		return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Fail, Err: c.Skip, Failure: "skipped"}}
	}
	return endOf(c, done)
}

// Each row runs a graph whose nodes in fails fail. Each node runs once, after all that it waits
// for; a skipped node never runs, and the root goes on once, when all have ended.
func TestEdgesDecideWhatRuns(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ graph, fails, ran, want string }{
		{"a b", "", "ab", "a done, b done"},
		{"b<a a", "", "ab", "a done, b done"},
		{"a b<a c<a d<b,c", "", "abcd", "a done, b done, c done, d done"},
		{"a b<a c<b d<c", "a", "a", "a failed, b skipped, c skipped, d skipped"},
		{"a b<a c<b? d<c", "a", "acd", "a failed, b skipped, c done, d done"},
		{"a b<a! c<a", "a", "ab", "a failed, b done, c skipped"},
		{"a b<a! c<a", "", "ac", "a done, b skipped, c done"},
		{"a b c<a,b", "b", "ab", "a done, b failed, c skipped"},
		{"a b c<a?,b! d<c?", "a", "abd", "a failed, b done, c skipped, d done"},
		{"a b<a! c<b!", "", "ac", "a done, b skipped, c done"},
		{"a b c d<a*,b*,c*,2", "", "abcd", "a done, b done, c done, d done"},
		{"a b c d<a*,b*,c*,2", "a", "abcd", "a failed, b done, c done, d done"},
		{"a b c d<a*,b*,c*,2", "ac", "abc", "a failed, b done, c failed, d skipped"},
		{"a b c d<a*,b*,c*,3 e<d!", "c", "abce", "a done, b done, c failed, d skipped, e done"},
		{"a b c<a*,b*,1 d<c", "a", "abcd", "a failed, b done, c done, d done"},
		{"a b c d<a*,b*,1,c", "c", "abc", "a done, b done, c failed, d skipped"},
		{"a b c d<a*,b*,1,c?", "bc", "abcd", "a done, b failed, c failed, d done"},
		{"a b c d<a*,b*,1,c", "ab", "abc", "a failed, b failed, c done, d skipped"},
	} {
		root, ids := b.graph(c.graph)
		names := map[int64]string{}
		for name, id := range ids {
			names[id] = name
		}
		ran := ""
		for woken := false; !woken; {
			require.Equal(t, "awaiting_children", b.status(root), c.graph)
			got := b.claim()
			require.NotEmpty(t, got.Claims, "%s: nothing is left to run: %s", c.graph, b.states(root))
			for _, claim := range got.Claims {
				name := names[claim.ID]
				require.Equal(t, name, claim.Node)
				e := b.endNode(claim, !strings.Contains(c.fails, name))
				if e.Commit.Failure != "skipped" {
					ran += name
				}
				b.commit(newMark(), false, e)
				b.skip()
				woken = b.status(root) == "runnable"
			}
		}
		require.Equal(t, c.ran, ran, c.graph)
		require.Equal(t, c.want, b.states(root), c.graph)
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
}

// A node gets the results for which it has waited, in order of ids, one result for several nodes,
// and a result that is too large not with others.
func TestNodesAreFed(t *testing.T) {
	b := newBench(t)
	_, ids := b.graph("a b<a c<a,b? d<a")
	a := b.claimOne()
	require.NoError(t, b.Feed(t.Context(), []*step.Claim{a}, 1<<20))
	require.Equal(t, []step.Upstream{}, a.Upstream, "it has waited for nothing")
	b.commit(newMark(), false, store.Entry{Claim: a, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{"n": 1}`)}})
	got := b.claim()
	require.Len(t, got.Claims, 2, "c waits for b")
	require.NoError(t, b.Feed(t.Context(), got.Claims, 0), "the first page is read in any case")
	for _, c := range got.Claims {
		require.False(t, c.Unfed())
		require.Len(t, c.Upstream, 1)
		require.Equal(t, ids["a"], c.Upstream[0].Child.ID)
		require.Equal(t, "a", c.Upstream[0].Child.Node)
		require.JSONEq(t, `{"n": 1}`, string(c.Upstream[0].Child.Result))
	}
	b.exec(`UPDATE gendurable.gen_durable SET result = (SELECT jsonb_build_object('x', string_agg(md5(n::text), '')) FROM generate_series(1, 40000) n) WHERE id = $1`, ids["a"])
	b.commit(newMark(), false, endOf(got.Claims[0], false))
	c := b.claimOne()
	require.Equal(t, "c", c.Node)
	require.NoError(t, b.Feed(t.Context(), []*step.Claim{c}, 1000))
	require.True(t, c.Unfed(), "b is behind what is too large")
	require.NoError(t, b.Feed(t.Context(), []*step.Claim{c}, 8<<20))
	require.Len(t, c.Upstream, 2)
	require.Empty(t, c.Skip)

	// Whether it is skipped it has counted itself: the node may be gone.
	b.exec(`DELETE FROM gendurable.edges WHERE to_id = $1`, c.ID)
	b.exec(`UPDATE gendurable.gen_durable SET join_failed = 1 WHERE id = $1`, c.ID)
	gone := *c
	gone.Upstream = nil
	require.NoError(t, b.Feed(t.Context(), []*step.Claim{&gone}, 0))
	require.Empty(t, gone.Upstream)
	require.Contains(t, gone.Skip, "deleted since")

	// A graph is over with its root: a node that had not begun never does.
	b.commit(newMark(), false, endOf(c, true))
	root2, _ := b.graph("x y<x")
	x := b.claimOne()
	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE id = $1`, root2)
	require.NoError(t, b.Feed(t.Context(), []*step.Claim{x}, 1<<20))
	require.Equal(t, "skipped: its graph is over", x.Skip)
	b.commit(newMark(), false, endOf(x, true))
	y := b.claimOne()
	require.NoError(t, b.Feed(t.Context(), []*step.Claim{y}, 1<<20))
	require.NotEmpty(t, y.Skip)
}

// A graph is there with the outcome that makes it, or not at all. Large ones go in several
// messages.
func TestGraphIsAllOrNothing(t *testing.T) {
	b := newBench(t)
	c := b.executing(nil)
	c.Visit++
	got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{graphOf(c, "a b<a")}, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied, "it is stale")
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE node IS NOT NULL`))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.edges`))

	c.Visit--
	e := graphOf(c, "a b<a c<b d<c,a")
	for i := range e.Commit.Spawn {
		e.Commit.Spawn[i].State = json.RawMessage(`"` + strings.Repeat("x", 9<<20) + `"`)
	}
	e.Commit.Spawn[2].Retain = step.Retain{Done: time.Hour}
	b.commit(newMark(), false, e)
	require.Equal(t, []string{"a>b", "a>d", "b>c", "c>d"}, b.column(`SELECT f.node || '>' || t.node FROM gendurable.edges e
		JOIN gendurable.gen_durable f ON f.id = e.from_id JOIN gendurable.gen_durable t ON t.id = e.to_id ORDER BY 1`))
	require.Equal(t, "a runnable, b awaiting_children, c awaiting_children, d awaiting_children", b.states(c.ID))
	require.Equal(t, []string{"0", "1", "1", "2"},
		b.column(`SELECT children_pending::text FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY node`, c.ID))
}

// A session that has locked a row that waits for a node delays the end of this node, and of no
// other. The slow lane waits for him.
func TestHeldSuccessorHoldsUpItsOrigin(t *testing.T) {
	b := newBench(t)
	root, ids := b.graph("a b c<a d<b")
	got := b.claim().Claims
	require.Len(t, got, 2)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, ids["c"])
	for _, record := range []*store.Record{nil, {}} {
		batch := []store.Entry{endOf(got[0], true), endOf(got[1], true)}
		batch[0].Record, batch[1].Record = record, record
		done, err := b.Commit(t.Context(), me, newMark(), batch, 0)
		require.NoError(t, err)
		require.Equal(t, record == nil, done.Applied[ids["b"]])
		require.False(t, done.Applied[ids["a"]])
		require.Equal(t, "a executing, b done, c awaiting_children, d runnable", b.states(root))
	}
	require.Zero(t, b.reapOver(), "the reaper passes it by")
	require.NoError(t, stranger.Rollback(t.Context()))
	b.commit(newMark(), true, endOf(got[0], true))
	require.Equal(t, "a done, b done, c runnable, d runnable", b.states(root))
}

// reapOver reaps all executing rows, over their crash limit, and returns how many.
func (b bench) reapOver() int {
	b.t.Helper()
	b.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 s', crashes = 9 WHERE status = 'executing'`)
	got, err := b.Reap(b.t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{1}}, 100)
	require.NoError(b.t, err)
	b.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() + interval '1 hour' WHERE status = 'executing'`)
	return len(got.Failed)
}

// Each way to end a node settles its edges: a crash too many, a deadline, a cancel.
func TestEveryEndOfANodeSettlesItsEdges(t *testing.T) {
	b := newBench(t)
	for name, end := range map[string]func(id int64){
		"crash": func(int64) { require.Equal(t, 1, b.reapOver()) },
		"deadline": func(id int64) {
			b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, deadline = now() WHERE id = $1`, id)
			got, err := b.Expire(t.Context(), newMark(), 10)
			require.NoError(t, err)
			require.Len(t, got.Failed, 1)
		},
		"cancel": func(id int64) { b.operate(store.Order{Verb: store.Cancel}, id) },
	} {
		for _, recording := range []bool{false, true} {
			require.NoError(t, b.SetRecorded(t.Context(), map[bool][]string{true: {"m"}}[recording], nil))
			_, err := b.Poll(t.Context(), nil, nil, nil)
			require.NoError(t, err)
			root, ids := b.graph("a b<a c<a! d<b")
			a := b.claimOne()
			end(a.ID)
			require.Equal(t, "runnable", b.status(ids["b"]), "%s: to be skipped", name)
			require.Equal(t, "runnable", b.status(ids["c"]), name)
			require.Equal(t, "awaiting_children", b.status(ids["d"]), "%s: level by level", name)
			require.Equal(t, 3, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, root), name)
			// A waiting node may end as well. A node that ends then finds no waiting node.
			end2 := b.operate(store.Order{Verb: store.Cancel, Descendants: true, Most: 10}, root)
			require.Len(t, end2.Changed, 4, name)
			require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE finished_at IS NULL`))
			b.exec(`DELETE FROM gendurable.gen_durable`)
			b.exec(`DELETE FROM gendurable.edges`)
		}
	}
}

// A node is not run by itself: the nodes for which it waits would not have ended, or no node would
// wait for it.
func TestANodeIsNotRunByItself(t *testing.T) {
	b := newBench(t)
	b.graph("a b<a")
	a := b.claimOne()
	b.commit(newMark(), false, endOf(a, false))
	got := b.operate(store.Order{Verb: store.Retry}, a.ID)
	require.Len(t, got.Refused, 1)
	require.ErrorIs(t, got.Refused[0].Why, store.ErrNode)
	_, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 1)
	require.NoError(t, err)
	_, waiting := b.graph("x y<x")
	for _, id := range []int64{a.ID, waiting["y"]} {
		got = b.operate(b.copied(store.Rewind, id), id)
		require.Len(t, got.Refused, 1)
		require.ErrorIs(t, got.Refused[0].Why, store.ErrNode)
	}
	// New keys end the visit at which a node waits, and at which it finds that it is skipped.
	for range 2 {
		order := b.copied(store.Edits, waiting["y"])
		order.NewKeys = true
		got = b.operate(order, waiting["y"])
		require.Len(t, got.Refused, 1)
		require.ErrorIs(t, got.Refused[0].Why, store.ErrNode)
		got = b.operate(b.copied(store.Rewind, waiting["y"]), waiting["y"])
		require.Len(t, got.Refused, 1, b.status(waiting["y"]))
		order.NewKeys = false
		require.Len(t, b.operate(order, waiting["y"]).Changed, 1)
		if b.status(waiting["y"]) == "awaiting_children" {
			b.operate(store.Order{Verb: store.Cancel}, waiting["x"])
			require.Equal(t, "runnable", b.status(waiting["y"]), "to be skipped")
		}
	}
}

// A root is not retried at a join of nodes that have failed, nor a child of a node that has failed:
// it would do nothing. One that has failed by itself is, as one whose alert was skipped.
func TestWhatOnlyARestartHelps(t *testing.T) {
	b := newBench(t)
	retry := func(id int64) (why error) {
		got := b.operate(store.Order{Verb: store.Retry}, id)
		require.Equal(t, 1, len(got.Refused)+len(got.Changed))
		if len(got.Refused) > 0 {
			return got.Refused[0].Why
		}
		return nil
	}
	fail := `UPDATE gendurable.gen_durable SET status = 'failed', failure = $2, finished_at = now(), locked_by = NULL, lease_expires_at = NULL, join_failed = $3,
		joined = gen_random_uuid() WHERE id = $1`
	end := `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), locked_by = NULL, lease_expires_at = NULL, joined = gen_random_uuid() WHERE id = $1`
	for name, c := range map[string]struct {
		b    func(id int64)
		want error
	}{
		"failed":                     {func(id int64) { b.exec(fail, id, "error", 0) }, store.ErrRoot},
		"lives":                      {func(int64) {}, store.ErrRoot},
		"skipped, for another":       {func(id int64) { b.exec(fail, id, "skipped", 1) }, nil},
		"skipped, since it was over": {func(id int64) { b.exec(fail, id, "skipped", 0) }, store.ErrRoot},
		"done":                       {func(id int64) { b.exec(end, id) }, nil},
	} {
		root, ids := b.graph("a b<a")
		b.exec(end, ids["a"])
		c.b(ids["b"])
		b.exec(fail, root, "error", 0)
		why := retry(root)
		require.ErrorIs(t, why, c.want, name)
		require.Equal(t, c.want != nil, errors.Is(why, store.ErrUseRestart), name)
		b.exec(`UPDATE gendurable.gen_durable SET visit = visit + 1, status = 'failed', failure = 'error', finished_at = now() WHERE id = $1`, root)
		require.NoError(t, retry(root), "%s: it stands at no join", name)

		piece := b.row("parent_id, parent_round, status, failure, finished_at", "$1, 1, 'failed', 'error', now()", ids["b"])
		if name == "failed" {
			require.ErrorIs(t, retry(piece), store.ErrPiece)
			got := b.operate(store.Order{Verb: store.Restart, Most: 10}, piece)
			require.Len(t, got.Refused, 1)
			require.ErrorIs(t, got.Refused[0].Why, store.ErrPiece)
			require.Equal(t, "failed", b.status(piece))
		} else if name == "lives" || name == "done" {
			require.NoError(t, retry(piece), name)
		}
	}
}

// An engine without graphs needs no right to their edges: only the first cancel of a node reads
// them, and begins anew for it.
func TestCancelsReadEdgesOfNodesOnly(t *testing.T) {
	b := newBench(t)
	plain, child := b.executing(nil), b.executing(nil)
	b.commit(newMark(), false, spawnOf(child, kids(2)))
	b.exec(`ALTER TABLE gendurable.edges RENAME TO hidden`)
	for _, family := range []bool{false, true} {
		require.NotEmpty(t, b.operate(store.Order{Verb: store.Cancel, Descendants: family, Most: 10}, map[bool]int64{false: plain.ID, true: child.ID}[family]).Changed)
	}
	b.exec(`ALTER TABLE gendurable.hidden RENAME TO ` + strings.TrimPrefix(byHand("gendurable.edges"), "gendurable."))

	above, _ := b.graph("a b<a c<b")
	newcomer := func() *store.Store { // which has met no node
		s := store.New(entpgx.New(b.pool), schema)
		located(t, s)
		return s
	}
	got, err := newcomer().Operate(t.Context(), []int64{above}, &store.Order{Verb: store.Cancel, Mark: newMark(), Descendants: true, Most: 10})
	require.NoError(t, err)
	require.Len(t, got.Changed, 4)

	// In a host's transaction nothing can begin anew: the waiting rows are locked after the node.
	root, ids := b.graph("a b<a c<b")
	hosted := b.begin()
	got, err = newcomer().Within(store.Pgx(hosted)).Cancel(t.Context(), []int64{ids["a"]}, &store.Order{Mark: newMark()})
	require.NoError(t, err)
	require.Len(t, got.Changed, 1)
	require.NoError(t, hosted.Commit(t.Context()))
	require.Equal(t, "a cancelled, b runnable, c awaiting_children", b.states(root))
}

// The GC deletes a node's edges with the node.
func TestPruneDeletesEdges(t *testing.T) {
	b := newBench(t)
	root, _ := b.graph("a b<a c<b")
	for range 3 {
		b.commit(newMark(), false, endOf(b.claimOne(), true))
	}
	b.commit(newMark(), false, store.Entry{Claim: b.claimOne(), Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)}})
	require.Equal(t, "done", b.status(root))
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.edges`))
	b.exec(`UPDATE gendurable.gen_durable SET finished_at = now() - interval '2 days'`)
	b.prune(aDay)
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.edges`))
}

// Workers end the nodes of random graphs side by side, some of which fail or are cancelled, while
// other sessions hold nodes. Each graph comes to its end, each edge counts once, and no node runs
// before what it waits for has ended.
func TestConcurrentEndsOfNodes(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE public.woken (id bigint, ready boolean)`)
	b.exec(`CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.woken SELECT NEW.id, count(*) FILTER (WHERE f.finished_at IS NULL AND e.needs < 3) = 0
				AND coalesce(count(*) FILTER (WHERE f.status = 'done' AND e.needs = 3) >= NEW.wake_done, true)
			OR coalesce(bool_or(f.finished_at IS NOT NULL AND NOT (e.needs = 1 OR (e.needs = 0) = (f.status = 'done'))) FILTER (WHERE e.needs < 3), false)
			OR coalesce(count(*) FILTER (WHERE f.status <> 'failed' AND e.needs = 3) < NEW.wake_done, false)
			FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id WHERE e.to_id = NEW.id;
		RETURN NULL; END $$`)
	b.exec(`CREATE TRIGGER see AFTER UPDATE ON gendurable.gen_durable FOR EACH ROW
		WHEN (OLD.status = 'awaiting_children' AND NEW.status = 'runnable' AND NEW.node IS NOT NULL) EXECUTE FUNCTION public.see()`)
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // not a secret
	for round := range 15 {
		n := 2 + rng.IntN(25)
		var words []string
		for i := range n {
			var before []string
			members, quorum := 0, rng.IntN(3) == 0
			for j := range i {
				switch {
				case rng.IntN(i+1) >= 2:
				case quorum && rng.IntN(4) > 0:
					members++
					before = append(before, fmt.Sprint("n", j, "*"))
				default:
					before = append(before, fmt.Sprint("n", j, []string{"", "?", "!"}[max(0, rng.IntN(6)-3)]))
				}
			}
			if members > 0 {
				before = append(before, fmt.Sprint(1+rng.IntN(members)))
			}
			words = append(words, fmt.Sprintf("n%d<%s", i, strings.Join(before, ",")))
		}
		root, ids := b.graph(strings.Join(words, " "))
		all := slices.Collect(maps.Values(ids))
		fails := rng.IntN(5)
		var working sync.WaitGroup
		errs := make(chan error, 4)
		for w := range 3 {
			own := rand.New(rand.NewPCG(uint64(round), uint64(w))) //nolint:gosec // not a secret
			working.Go(func() { errs <- b.runNodes(root, own, fails) })
		}
		working.Go(func() { // a stranger, and an operator
			own := rand.New(rand.NewPCG(uint64(round), 9)) //nolint:gosec // not a secret
			var err error
			for range 10 {
				id := all[own.IntN(len(all))]
				if own.IntN(8) == 0 {
					_, err = b.Operate(t.Context(), []int64{id}, &store.Order{Verb: store.Cancel, Mark: newMark()})
				} else {
					_, err = b.pool.Exec(t.Context(), byHand(`UPDATE gendurable.gen_durable SET priority = priority WHERE id = $1`), id)
				}
				if err != nil && store.Classify(err) != store.FaultTransient {
					break
				}
				err = nil
			}
			errs <- err
		})
		working.Wait()
		for range 4 {
			require.NoError(t, <-errs)
		}
		require.Contains(t, []string{"runnable", "executing"}, b.status(root), "round %d: %s", round, b.states(root))
		require.Equal(t, []string{"0 0"}, b.column(`SELECT DISTINCT (SELECT children_pending FROM gendurable.gen_durable WHERE id = $1) || ' ' ||
			(SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND finished_at IS NULL)`, root))
		require.Zero(t, b.number(`SELECT count(*) FROM public.woken WHERE ready IS NOT TRUE`), "round %d", round)
		require.Zero(t, b.number(`SELECT count(*) - count(DISTINCT id) FROM public.woken`), "round %d: a node woke twice", round)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, root)
	}
}

// runNodes claims and ends nodes until the root goes on. fails of 10 fail.
func (b bench) runNodes(root int64, rng *rand.Rand, fails int) error {
	ctx := b.t.Context()
	for range 10_000 {
		var left int
		if err := b.pool.QueryRow(ctx, byHand(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`), root).Scan(&left); err != nil || left == 0 {
			return err
		}
		if _, err := b.skipAll(ctx, 3); err != nil && store.Classify(err) != store.FaultTransient {
			return err
		}
		got, err := b.Claim(ctx, store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 3, Window: 1000, Lease: time.Hour})
		if err != nil {
			if store.Classify(err) == store.FaultTransient {
				continue
			}
			return err
		}
		var batch []store.Entry
		for _, c := range got.Claims {
			if c.ID == root {
				return nil // it is left executing: nobody looks
			}
			if err := b.Feed(ctx, []*step.Claim{c}, 1<<20); err != nil {
				return err
			}
			e := endOf(c, rng.IntN(10) >= fails)
			if c.Skip != "" {
				e.Commit = &step.Commit{Kind: step.Fail, Err: c.Skip, Failure: "skipped"}
			}
			batch = append(batch, e)
		}
		for try := 0; len(batch) > 0 && try < 1000; try++ {
			done, err := b.Commit(ctx, me, newMark(), batch, inLane(try > 0))
			if err != nil && store.Classify(err) != store.FaultTransient {
				return err
			}
			batch = slices.DeleteFunc(batch, func(e store.Entry) bool {
				var held bool
				if err := b.pool.QueryRow(ctx, byHand(`SELECT status = 'executing' AND claim_token = $2 FROM gendurable.gen_durable WHERE id = $1`),
					e.Claim.ID, e.Claim.Token).Scan(&held); err != nil {
					return true
				}
				return done.Applied[e.Claim.ID] || !held // an operator has cancelled it
			})
		}
	}
	return fmt.Errorf("root %d never wakes", root)
}

// chained returns the outcome that makes a graph of n nodes, each of which waits for the one
// before.
func (b bench) chained(n int) store.Entry {
	b.t.Helper()
	var words []string
	for i := range n {
		words = append(words, fmt.Sprintf("n%d<", i))
		if i > 0 {
			words[i] += fmt.Sprintf("n%d", i-1)
		}
	}
	return graphOf(b.executing(nil), strings.Join(words, " "))
}

// layered makes a graph whose 2n nodes are in two layers: each of the second waits for two of the
// first, which execute. It returns the claims of the first, and the ids of the second.
func (b bench) layered(n int) (first []*step.Claim, second []int64) {
	b.t.Helper()
	var words []string
	for i := range n {
		words = append(words, fmt.Sprintf("a%03d", i))
	}
	for i := range n {
		words = append(words, fmt.Sprintf("b%03d<a%03d?", i, i))
		if j := (i + 1) % n; j != i {
			words[len(words)-1] += fmt.Sprintf(",a%03d?", j)
		}
	}
	root, _ := b.graph(strings.Join(words, " "))
	b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = $2, claim_token = 7, lease_expires_at = now() + interval '1 hour'
		WHERE parent_id = $1 AND status = 'runnable'`, root, me)
	rows, err := b.pool.Query(b.t.Context(), byHand(`SELECT id, node, status::text FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY id`), root)
	require.NoError(b.t, err)
	for rows.Next() {
		c := step.Claim{Step: "start", Queue: "default", Token: 7, Parent: root, ParentRound: 1}
		var status string
		require.NoError(b.t, rows.Scan(&c.ID, &c.Node, &status))
		if status == "executing" {
			first = append(first, &c)
		} else {
			second = append(second, c.ID)
		}
	}
	require.NoError(b.t, rows.Err())
	require.Len(b.t, first, n)
	require.Len(b.t, second, n)
	return first, second
}

// What the end of a node costs does not depend on how large its graph is.
func TestEndsOfNodesCostTheirEdges(t *testing.T) {
	b := newBench(t)
	b.exec(`ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = off)`)
	b.exec(`ALTER TABLE gendurable.edges SET (autovacuum_enabled = off)`)
	const ends = 50
	large, _ := b.layered(5000)
	small, _ := b.layered(ends)
	b.exec(`ANALYZE gendurable.gen_durable, gendurable.edges`)
	e := b.explained("")
	buffers := func(of []*step.Claim) int {
		var batch []store.Entry
		for _, c := range of {
			batch = append(batch, endOf(c, true))
		}
		e.unwatched("ends of nodes")
		e.cost()
		require.Len(t, e.commit(newMark(), false, batch...).Applied, ends)
		return e.cost().buffers
	}
	inSmall, inLarge := buffers(small[:ends]), buffers(large[:ends])
	t.Logf("%d ends in a graph of %d nodes touch %d buffers, in one of %d nodes %d", ends, 2*len(small), inSmall, 2*len(large), inLarge)
	require.LessOrEqual(t, float64(inLarge), 1.1*float64(inSmall))
}

func (b bench) endsOfNodes(n int) (out []store.Entry) {
	b.t.Helper()
	first, _ := b.layered(n)
	for i, c := range first {
		out = append(out, endOf(c, i%2 == 0))
	}
	return out
}

// fedBy returns the claims of n nodes, each of which has waited for two others.
func (b bench) fedBy(n int) (out []*step.Claim) {
	b.t.Helper()
	_, second := b.layered(n)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'done', result = '{}', finished_at = now(), locked_by = NULL, lease_expires_at = NULL
		WHERE node LIKE 'a%' AND status = 'executing'`)
	for _, id := range second {
		out = append(out, &step.Claim{ID: id, Node: "b"})
	}
	return out
}
