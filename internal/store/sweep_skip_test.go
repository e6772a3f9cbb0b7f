package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// skip sweeps until a pass finds nothing, as a worker does, and returns what it has skipped.
func (b bench) skip() (ids []int64) {
	b.t.Helper()
	ids, err := b.skipAll(b.t.Context(), 200)
	require.NoError(b.t, err)
	return ids
}

func (b bench) skipAll(ctx context.Context, most int) (ids []int64, err error) {
	for after, found := int64(0), false; ; {
		got, err := b.Skip(ctx, newMark(), after, most)
		if err != nil {
			return ids, err
		}
		if len(got.Refused) > 0 {
			return ids, fmt.Errorf("refused: %v", got.Refused)
		}
		ids, found = append(ids, got.Failed...), found || len(got.Failed) > 0
		switch {
		case got.Last > 0:
			after = got.Last
		case found:
			after, found = 0, false
		default:
			return ids, nil
		}
	}
}

// skipsDue reports what a poll finds.
func (b bench) skipsDue() bool {
	b.t.Helper()
	got, err := b.Poll(b.t.Context(), nil, nil, nil)
	require.NoError(b.t, err)
	return got.Skips
}

// lanes are the lanes of the nodes of a root, by name.
func (b bench) lanes(root int64) string {
	b.t.Helper()
	return strings.Join(b.column(`SELECT concat_ws(' ', node, status, pick_lane) FROM gendurable.gen_durable WHERE parent_id = $1 AND node <> 'a' ORDER BY node`, root), ", ")
}

// A node that is to be skipped needs nothing that a step needs. Each row is a reason for which a
// claim would not take it.
func TestASkipNeedsNoClaim(t *testing.T) {
	b := newBench(t)
	for name, set := range map[string]string{
		"delayed":             "eligible_at = now() + interval '1 day'",
		"of a busy key":       "partition_key = 'busy'",
		"of another queue":    "queue = 'other'",
		"of a paused queue":   "queue = 'paused'",
		"at a gate":           `labels = '{"api": "bank"}'`,
		"of a newer machine":  "fsm_version = 9",
		"of a strange step":   "step = 'gone'",
		"over its retries":    "attempt = 1000",
		"with an own history": "fsm = 'recorded'",
	} {
		b.insert(columns{"fsm": `'m'`, "step": `'s'`, "partition_key": `'busy'`, "status": `'executing'`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 h'`})
		require.NoError(t, b.SetRecorded(t.Context(), []string{"recorded"}, nil))
		b.poll()
		root, ids := b.graph("a b<a c<b")
		b.exec(`UPDATE gendurable.gen_durable SET `+set+` WHERE id = $1`, ids["b"])
		done := b.commit(newMark(), false, endOf(b.claimOne(), false))
		require.True(t, done.Skips, name)
		require.Empty(t, done.Queues, "%s: nothing is to be claimed", name)
		require.Equal(t, "b runnable 5, c awaiting_children 0", b.lanes(root), name)
		require.Empty(t, b.claim().Claims, name)
		require.True(t, b.skipsDue(), name)
		require.Equal(t, []int64{ids["b"], ids["c"]}, b.skip(), name)
		require.False(t, b.skipsDue(), name)
		require.Equal(t, "a failed, b skipped, c skipped", b.states(root), name)
		require.Equal(t, "runnable", b.status(root), name)
		require.Equal(t, []string{`skipped: node "a" is failed`, `skipped: node "b" is failed`},
			b.column(`SELECT last_error FROM gendurable.gen_durable WHERE parent_id = $1 AND failure = 'skipped' ORDER BY id`, root), name)
		require.Equal(t, strings.Count(set, "recorded"), b.number(`SELECT count(*) FROM gendurable.history WHERE instance = $1 AND kind = 'node.skip'
			AND failure = 'skipped' AND error = 'skipped: node "a" is failed' AND worker IS NULL`, ids["b"]), name)
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
}

func (b bench) poll() {
	b.t.Helper()
	_, err := b.Poll(b.t.Context(), nil, nil, nil)
	require.NoError(b.t, err)
}

// The reason of a skip names the first edge that is not met.
func TestWhyANodeIsSkipped(t *testing.T) {
	b := newBench(t)
	for graph, want := range map[string]string{
		"a b z<b":           `node "b" is failed`,
		"a b z<a!":          `node "a" is done`,
		"b a z<b?,a!":       `node "a" is done`,
		"a b c z<b*,c*,2,a": `too few of a quorum are done: node "b" is failed`,
		"a b c z<a*,b*,2,c": `node "c" is failed`,
	} {
		root, ids := b.graph(graph)
		var ends []store.Entry
		for _, c := range b.claim().Claims {
			ends = append(ends, endOf(c, c.Node == "a"))
		}
		b.commit(newMark(), false, ends...)
		require.Equal(t, []int64{ids["z"]}, b.skip(), graph)
		require.Equal(t, "skipped: "+want, b.text(`SELECT last_error FROM gendurable.gen_durable WHERE id = $1`, ids["z"]), graph)
		require.Equal(t, "runnable", b.status(root), graph)
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
	root, ids := b.graph("a z<a")
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	b.exec(`DELETE FROM gendurable.edges`)
	b.skip()
	require.Contains(t, b.text(`SELECT last_error FROM gendurable.gen_durable WHERE id = $1`, ids["z"]), "deleted since")
	require.Equal(t, "runnable", b.status(root))
}

// A paused node is skipped once it is resumed. Whatever else an operator does to a node that is to
// be skipped leaves it to the sweep.
func TestVerbsLeaveWhatIsToBeSkipped(t *testing.T) {
	b := newBench(t)
	root, ids := b.graph("a b<a c<a")
	b.operate(store.Order{Verb: store.Pause}, ids["b"])
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	require.Equal(t, []int64{ids["c"]}, b.skip())
	require.False(t, b.skipsDue())
	require.Equal(t, "b runnable 5, c failed 0", b.lanes(root))
	for name, o := range map[string]store.Order{
		"run now": {Verb: store.RunNow}, "reschedule": {Verb: store.Reschedule, At: time.Now().Add(time.Hour)}, "pause": {Verb: store.Pause},
		"edit": b.copied(store.Edits, ids["b"]), "resume": {Verb: store.Resume},
	} {
		b.operate(o, ids["b"])
		require.Equal(t, "b runnable 5, c failed 0", b.lanes(root), name)
	}
	b.exec(`UPDATE gendurable.gen_durable SET paused = false WHERE id = $1`, ids["b"])
	found, err := b.Unmoved(t.Context(), []int64{ids["b"]}, "m", 1)
	require.NoError(t, err)
	moved, _, err := b.Move(t.Context(), "m", 1, 2, []store.Moved{{Unmoved: found[0], Step: "start", State: []byte(`{}`)}}, store.By{Actor: "deploy"})
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	require.Empty(t, b.claim().Claims)
	require.Equal(t, []int64{ids["b"]}, b.skip())
	require.Equal(t, "runnable", b.status(root))
}

// A sweep passes by locked rows: the node, its root, or one that waits behind it. It waits for no
// transaction, and skips the others. A later sweep has them.
func TestSkipPassesByWhatIsHeld(t *testing.T) {
	b := newBench(t)
	for held, want := range map[string]string{"b": "c", "d": "c", "root": ""} {
		root, ids := b.graph("a b<a c<a d<b")
		_, others := b.graph("a x<a")
		ids["root"] = root
		b.commit(newMark(), false, endOf(b.claimNode("a"), false), endOf(b.claimNode("a"), false))
		stranger := b.begin()
		b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, ids[held])
		got := b.skip()
		require.Contains(t, got, others["x"], held)
		require.Equal(t, want != "", slices.Contains(got, ids["c"]), held)
		require.NotContains(t, got, ids["b"], held)
		require.True(t, b.skipsDue(), held)
		require.NoError(t, stranger.Rollback(t.Context()))
		b.skip()
		require.Equal(t, "a failed, b skipped, c skipped, d skipped", b.states(root), held)
		require.Equal(t, "runnable", b.status(root), held)
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.exec(`DELETE FROM gendurable.edges`)
	}
}

// claimNode claims the next row, which is a node of this name.
func (b bench) claimNode(name string) *step.Claim {
	b.t.Helper()
	got := b.claim(func(p *store.ClaimParams) { p.Limit = 1 }).Claims
	require.Len(b.t, got, 1)
	require.Equal(b.t, name, got[0].Node)
	return got[0]
}

// A restart lets a node that is to be skipped wait again, with its delay. The sweep that comes
// after it, or has waited for nothing while it was under way, leaves the node alone.
func TestRestartBeforeASkip(t *testing.T) {
	b := newBench(t)
	root, ids := b.arrange("a b<a c<b", nil)
	b.exec(`UPDATE gendurable.gen_durable SET eligible_at = '2100-01-01' WHERE id = $1`, ids["b"])
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	require.Len(t, b.restart(root).Changed, 3, "the root, a and b")
	require.Empty(t, b.skip())
	require.Equal(t, "b awaiting_children 0, c awaiting_children 0", b.lanes(root))
	require.Equal(t, "2100", b.text(`SELECT to_char(eligible_at, 'YYYY') FROM gendurable.gen_durable WHERE id = $1`, ids["b"]))
	b.exact(root)
	b.commit(newMark(), false, endOf(b.claimOne(), false))
	require.Equal(t, []int64{ids["b"], ids["c"]}, b.skip())
	require.Equal(t, "runnable", b.status(root))
}

// A node behind two that have failed stays to be skipped while one of them runs again.
func TestRestartOfOneOfTwo(t *testing.T) {
	b := newBench(t)
	root, ids := b.arrange("a b z<a,b", nil)
	for range 2 {
		c := b.claim(func(p *store.ClaimParams) { p.Limit = 1 }).Claims[0]
		b.commit(newMark(), false, endOf(c, false))
	}
	require.NotEmpty(t, b.restart(ids["a"]).Changed)
	require.Equal(t, "b failed 0, z runnable 5", b.lanes(root))
	require.Equal(t, []int64{ids["z"]}, b.skip())
	require.Equal(t, `skipped: node "b" is failed`, b.text(`SELECT last_error FROM gendurable.gen_durable WHERE id = $1`, ids["z"]))
	b.exact(root)
}

// The next instance under the partition key of a node goes on when that one is skipped.
func TestSkipPromotesTheNextOfAKey(t *testing.T) {
	b := newBench(t)
	_, ids := b.graph("a b<a")
	b.exec(`UPDATE gendurable.gen_durable SET partition_key = 'k' WHERE id = $1`, ids["b"])
	next := b.insert(plain.with(columns{"partition_key": `'k'`, "pick_lane": `1`, "eligible_at": `now() + interval '1 ms'`}))
	b.commit(newMark(), false, endOf(b.claimNode("a"), false))
	got, err := b.Skip(t.Context(), newMark(), 0, 10)
	require.NoError(t, err)
	require.Contains(t, got.Queues, "default")
	require.Equal(t, 0, b.number(`SELECT pick_lane FROM gendurable.gen_durable WHERE id = $1`, next))
}

// T199: a node behind which a hundred thousand are skipped holds up no other sweep: each
// transaction ends a slice of them, and the claims of others go on in between.
func TestManySkipsGoInSlices(t *testing.T) {
	b := newBench(t)
	many := b.toSkip(tier.Pick(2_000, 100_000))
	root := b.number(`SELECT parent_id FROM gendurable.gen_durable WHERE node IS NOT NULL AND parent_id IS NOT NULL LIMIT 1`)
	skipped := 0
	for after, last := int64(0), int64(1); last > 0; after = last {
		other := b.insert(plain)
		require.Contains(t, claimIDs(b.claim().Claims), other, "others are claimed in between")
		got, err := b.Skip(t.Context(), newMark(), after, 200)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got.Failed), 200)
		skipped, last = skipped+len(got.Failed), got.Last
	}
	require.Equal(t, many, skipped)
	require.False(t, b.skipsDue())
	require.NotEqual(t, "awaiting_children", b.status(int64(root)))
}

// toSkip makes n nodes that are to be skipped, behind one that has failed.
func (b bench) toSkip(n int) int {
	b.t.Helper()
	root, ids := b.graph("a b<a")
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, parent_id, parent_round, depth, node, children_pending)
		SELECT 'm', 'start', 'awaiting_children', $1, parent_round, depth, 'n' || n, 1 FROM gendurable.gen_durable, generate_series(2, $2::int) n WHERE id = $3`,
		root, n, ids["b"])
	b.exec(`INSERT INTO gendurable.edges SELECT $1, id, 0 FROM gendurable.gen_durable WHERE parent_id = $2 AND node LIKE 'n%'`, ids["a"], root)
	b.exec(`UPDATE gendurable.gen_durable SET children_pending = $2 + 1 WHERE id = $1`, root, n)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = $2, claim_token = 7, lease_expires_at = now() + interval '1 hour' WHERE id = $1`, ids["a"], me)
	a := &step.Claim{ID: ids["a"], Step: "start", Queue: "default", Token: 7, Parent: root, ParentRound: 1, Node: "a"}
	require.True(b.t, b.commit(newMark(), false, endOf(a, false)).Skips)
	return n
}

func skipOnce(b bench, n any) error {
	got, err := b.Skip(b.t.Context(), newMark(), 0, 1000)
	if err == nil && len(got.Failed) != n {
		return fmt.Errorf("skipped %d of %d", len(got.Failed), n)
	}
	return err
}
