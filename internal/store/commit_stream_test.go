package store_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// brief bounds the wait of a portion for locked rows.
const brief = 20 * time.Millisecond

// stream returns the policy of a stream.
func stream(most int) step.Join { return step.Join{Ended: 1, Stream: most} }

// streaming commits a parent of n children whose ends it is shown in portions.
func (b bench) streaming(n, most int) (parent int64, kids []*step.Claim) {
	b.t.Helper()
	join := stream(most)
	parent, kids = b.policedParent(n, &join)
	for _, kid := range kids {
		kid.ParentRound = -1
	}
	return parent, kids
}

// portion claims the parent, and returns what its visit is shown: the places of the children among
// kids.
func (b bench) portion(kids []*step.Claim) (c *step.Claim, places []int, left int) {
	b.t.Helper()
	c = b.claimOne()
	require.True(b.t, c.Joins())
	places, left = b.shown(c, kids)
	return c, places, left
}

func (b bench) shown(c *step.Claim, kids []*step.Claim) (places []int, left int) {
	b.t.Helper()
	p, err := b.Portion(b.t.Context(), c, brief)
	require.NoError(b.t, err)
	require.True(b.t, p.Held)
	require.True(b.t, p.Stream)
	page, behind, err := b.Children(b.t.Context(), p.IDs)
	require.NoError(b.t, err)
	require.Empty(b.t, behind)
	for i, child := range page {
		require.Equal(b.t, p.IDs[i], child.ID, "in the order of the portion")
		places = append(places, slices.IndexFunc(kids, func(k *step.Claim) bool { return k.ID == child.ID }))
	}
	return places, p.Left
}

// However children end, and whatever their parent does meanwhile, it is shown each of them once, in
// the order of the commits.
func TestStreamShowsEachEndOnceInOrder(t *testing.T) {
	b := newBench(t)
	parent, kids := b.streaming(11, 3)
	end := func(done bool, places ...int) []string {
		var batch []store.Entry
		for _, i := range places {
			batch = append(batch, endOf(kids[i], done))
		}
		return b.commit(newMark(), !done, batch...).Queues
	}
	require.Equal(t, []string{"default"}, end(true, 7), "the first end wakes it")
	require.Equal(t, []string{"default"}, end(false, 2), "it has not begun")
	require.Equal(t, []string{"default"}, end(true, 4, 5), "in one commit: by their ids")
	c, got, left := b.portion(kids)
	require.Equal(t, parent, c.ID)
	require.Equal(t, []int{7, 2, 4}, got)
	require.Equal(t, 8, left)

	// While it runs, by an operator, a crash and a deadline; then another in its own batch.
	_, err := b.Operate(t.Context(), []int64{kids[9].ID}, &store.Order{Verb: store.Cancel, Mark: newMark(), Most: 10})
	require.NoError(t, err)
	b.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 minute', crashes = 99 WHERE id = $1`, kids[8].ID)
	_, err = b.Reap(t.Context(), newMark(), store.CrashLimits{Machines: []string{"kid/1"}, Limits: []int32{1}}, 10)
	require.NoError(t, err)
	require.Equal(t, "failed", b.status(kids[8].ID))
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL, deadline = now() - interval '1 minute' WHERE id = $1`, kids[10].ID)
	_, err = b.Expire(t.Context(), newMark(), 10)
	require.NoError(t, err)
	require.Equal(t, "failed", b.status(kids[10].ID))
	again, left := b.shown(c, kids)
	require.Equal(t, []int{7, 2, 4}, again, "a visit keeps its portion")
	require.Equal(t, 8, left)
	require.Contains(t, b.commit(newMark(), false, rejoinOf(c, stream(4)), endOf(kids[0], true)).Queues, "default", "there are more")

	c, got, left = b.portion(kids)
	require.Equal(t, []int{5, 9, 8, 10}, got)
	require.Equal(t, 4, left)
	require.Contains(t, b.commit(newMark(), false, rejoinOf(c, stream(4))).Queues, "default")
	c, got, left = b.portion(kids)
	require.Equal(t, []int{0}, got)
	require.Equal(t, 3, left)
	require.Empty(t, b.commit(newMark(), true, rejoinOf(c, stream(2))).Queues)
	require.Equal(t, "awaiting_children", b.status(parent))

	// The others end, until none is left. One of them has no number: foreign SQL has ended it.
	require.Equal(t, []string{"default"}, end(false, 1))
	b.exec(`UPDATE gendurable.gen_durable SET stream_nth = NULL WHERE id = $1`, kids[1].ID)
	require.Equal(t, []string{"default"}, end(false, 3), "it is due already")
	c, got, left = b.portion(kids)
	require.Equal(t, []int{3, 1}, got, "without a number, it is behind those with one")
	require.Equal(t, 1, left)
	require.Empty(t, b.commit(newMark(), false, rejoinOf(c, stream(2)), endOf(kids[6], false)).Applied[kids[1].ID])
	c, got, left = b.portion(kids)
	require.Equal(t, []int{6}, got, "it ended in the commit of the Rejoin")
	require.Zero(t, left)
	require.Contains(t, b.commit(newMark(), false, rejoinOf(c, stream(2))).Queues, "default", "nothing is left to wait for")
	_, got, left = b.portion(kids)
	require.Empty(t, got)
	require.Zero(t, left)
}

// A session that holds a child of a portion, or its parent, keeps the portion from being noted, and
// is not waited for: the portion has the ends in their order, so it passes over none.
func TestAPortionWaitsForNobody(t *testing.T) {
	b := newBench(t)
	parent, kids := b.streaming(4, 3)
	for _, place := range []int{2, 0, 3} {
		b.commit(newMark(), false, endOf(kids[place], true))
	}
	c := b.claimOne()
	shown := []int64{kids[2].ID, kids[0].ID, kids[3].ID}
	for _, held := range append([]int64{parent}, shown...) {
		stranger := b.begin()
		b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, held)
		_, err := b.Portion(t.Context(), c, brief)
		require.True(t, store.IsLockTimeout(err), "%v", err)
		require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE stream_visit IS NOT NULL`))
		require.NoError(t, stranger.Rollback(t.Context()))
	}
	stranger := b.begin() // what is not in the portion does not matter
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, kids[1].ID)
	p, err := b.Portion(t.Context(), c, brief)
	require.NoError(t, err)
	require.Equal(t, store.Portion{Held: true, Stream: true, IDs: shown, Left: 1}, p)
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, kids[0].ID)
	again, err := b.Portion(t.Context(), c, brief)
	require.NoError(t, err, "what is noted needs no child's lock")
	require.Equal(t, p, again)
	_, err = b.Shorten(t.Context(), c, shown[:1])
	require.True(t, store.IsLockTimeout(err), "%v", err)
	require.NoError(t, stranger.Rollback(t.Context()))
	p, err = b.Shorten(t.Context(), c, shown[:1])
	require.NoError(t, err)
	require.Equal(t, shown[:1], p.IDs)
}

// A visit that runs again, after a Retry or a crash, is shown the same; and a process that has lost
// the claim is shown nothing, and takes nothing.
func TestAVisitKeepsItsPortion(t *testing.T) {
	b := newBench(t)
	parent, kids := b.streaming(5, 3)
	b.commit(newMark(), false, endOf(kids[3], true))
	b.commit(newMark(), false, endOf(kids[1], false))
	c, got, left := b.portion(kids)
	require.Equal(t, []int{3, 1}, got)
	require.Equal(t, 3, left)
	b.commit(newMark(), false, endOf(kids[0], true))
	b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Retry, State: c.State, Err: "again"}})
	second, got, left := b.portion(kids)
	require.Equal(t, []int{3, 1}, got, "after a Retry")
	require.Equal(t, 3, left)
	b.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 minute' WHERE id = $1`, parent)
	_, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 10)
	require.NoError(t, err)
	third, got, _ := b.portion(kids)
	require.Equal(t, []int{3, 1}, got, "after a crash")
	for _, late := range []*step.Claim{c, second} {
		p, err := b.Portion(t.Context(), late, brief)
		require.NoError(t, err)
		require.False(t, p.Held)
		require.Empty(t, p.IDs)
	}
	b.commit(newMark(), false, rejoinOf(third, stream(3)))
	late, err := b.Portion(t.Context(), third, brief)
	require.NoError(t, err)
	require.False(t, late.Held, "its visit is over")
	_, got, left = b.portion(kids)
	require.Equal(t, []int{0}, got)
	require.Equal(t, 2, left)
}

// A portion that is too large becomes shorter before its step has seen it. The children that are
// taken back come first at the next visit.
func TestAPortionIsShortened(t *testing.T) {
	b := newBench(t)
	_, kids := b.streaming(4, 3)
	for _, n := range []int{2, 0, 3} {
		b.commit(newMark(), false, endOf(kids[n], true))
	}
	c, got, left := b.portion(kids)
	require.Equal(t, []int{2, 0, 3}, got)
	require.Equal(t, 1, left)
	stale := *c
	stale.Token--
	p, err := b.Shorten(t.Context(), &stale, nil)
	require.NoError(t, err)
	require.False(t, p.Held)

	first := []int64{kids[2].ID}
	p, err = b.Shorten(t.Context(), c, first)
	require.NoError(t, err)
	require.Equal(t, store.Portion{Held: true, Stream: true, IDs: first, Left: 3}, p)
	p, err = b.Portion(t.Context(), c, brief)
	require.NoError(t, err)
	require.Equal(t, first, p.IDs, "it keeps what it has")
	b.commit(newMark(), false, rejoinOf(c, stream(3)))
	_, got, left = b.portion(kids)
	require.Equal(t, []int{0, 3}, got)
	require.Equal(t, 1, left)
}

// A visit that a signal or the time has woken may be shown nothing, and consumes nothing then.
func TestStreamUntilASignalOrATime(t *testing.T) {
	b := newBench(t)
	join := func() step.Join {
		j := stream(2)
		j.Names, j.Timeout = []string{"go"}, time.Hour
		return j
	}
	j := join()
	parent, kids := b.policedParent(3, &j)
	for _, kid := range kids {
		kid.ParentRound = -1
	}
	require.True(t, b.deliver(parent, named("go")).Woken)
	c, got, left := b.portion(kids)
	require.Empty(t, got)
	require.Equal(t, 3, left)
	require.Len(t, c.Awaited, 1)
	b.commit(newMark(), false, rejoinOf(c, join()))
	require.Equal(t, "awaiting_children", b.status(parent))
	b.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() WHERE id = $1`, parent)
	_, err := b.TimeOut(t.Context(), 10)
	require.NoError(t, err)
	b.commit(newMark(), false, endOf(kids[2], true))
	c, got, left = b.portion(kids)
	require.True(t, c.TimedOut)
	require.Equal(t, []int{2}, got)
	require.Equal(t, 2, left)

	// A step that is no joining step goes on with the stream from its last position.
	b.commit(newMark(), false, endOf(kids[0], true))
	b.commit(newMark(), false, store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Next, Step: "later", State: c.State}})
	c = b.claimOne()
	require.False(t, c.Joins())
	b.commit(newMark(), false, rejoinOf(c, stream(2)))
	_, got, left = b.portion(kids)
	require.Equal(t, []int{0}, got)
	require.Equal(t, 1, left)
}

// A Rejoin without Stream joins the whole round, and may cancel the rest of it. The stream goes on
// behind it with what no visit was shown.
func TestStreamThenTheWholeRound(t *testing.T) {
	b := newBench(t)
	parent, kids := b.streaming(4, 1)
	b.commit(newMark(), false, endOf(kids[1], true))
	c, got, _ := b.portion(kids)
	require.Equal(t, []int{1}, got)
	b.commit(newMark(), false, rejoinOf(c, step.Join{Ended: 1, Cancel: true}))
	require.False(t, b.restDue())
	require.True(t, b.commit(newMark(), false, endOf(kids[3], true)).Rest)
	require.ElementsMatch(t, []int64{kids[0].ID, kids[2].ID}, b.cancelRest())
	require.False(t, b.restDue())
	c = b.claimOne()
	require.Equal(t, parent, c.ID)
	p, err := b.Portion(t.Context(), c, brief)
	require.NoError(t, err)
	require.True(t, p.Held)
	require.False(t, p.Stream)
	round, err := b.round(c.ID, c.Round)
	require.NoError(t, err)
	require.Equal(t, claimIDs(kids), childIDs(round))
	b.commit(newMark(), false, rejoinOf(c, stream(2)))
	c, got, left := b.portion(kids)
	require.Equal(t, []int{3, 0}, got)
	require.Equal(t, 1, left)
	b.commit(newMark(), false, rejoinOf(c, stream(2)))
	_, got, left = b.portion(kids)
	require.Equal(t, []int{2}, got)
	require.Zero(t, left)
}

// Children that are not inserted, all or some, are none of the stream; and a stream of none goes
// on.
func TestStreamOfChildrenThatAreNotInserted(t *testing.T) {
	b := newBench(t)
	for _, n := range []int{0, 2} {
		c := b.executing(nil)
		e := spawnOf(c, (&scene{}).nChildren(n))
		join := stream(5)
		e.Commit.Join = &join
		for i := range e.Commit.Spawn {
			e.Commit.Spawn[i].Key = []string{uuid.NewString(), "taken"}[i]
		}
		if n > 0 {
			b.insert(columns{"fsm": `'m'`, "step": `'s'`, "queue": `'elsewhere'`, "paused": `true`, "correlation_key": `'taken'`, "correlation_scope": liveScope})
		}
		b.commit(newMark(), false, e)
		if n > 0 {
			kids := b.runKids(c.ID)
			require.Len(t, kids, 1)
			kids[0].ParentRound = -1
			b.commit(newMark(), false, endOf(kids[0], true))
		}
		joins := b.claimOne()
		require.Equal(t, c.ID, joins.ID)
		require.Len(t, joins.Dropped, n/2)
		p, err := b.Portion(t.Context(), joins, brief)
		require.NoError(t, err)
		require.Len(t, p.IDs, n/2)
		require.Zero(t, p.Left)
		b.commit(newMark(), false, rejoinOf(joins, stream(5)))
		require.Equal(t, "runnable", b.status(c.ID))
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// Four workers end children while their parent is shown them, a few at a time. What it is shown,
// one portion after the other, is the order of the numbers, which a later commit never comes
// before.
func TestConcurrentEndsOfAStream(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // not a secret
	for range 10 {
		parent, kids := b.streaming(5+rng.IntN(20), 1+rng.IntN(4))
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
		var order []int64
		for {
			var c *step.Claim
			steady.Eventually(t, func() bool {
				got := b.claim()
				if len(got.Claims) == 0 {
					return false
				}
				c = got.Claims[0]
				return true
			})
			require.Equal(t, parent, c.ID)
			var p store.Portion
			steady.Eventually(t, func() bool { // an end may hold the parent just now
				got, err := b.Portion(t.Context(), c, brief)
				if store.IsLockTimeout(err) {
					return false
				}
				require.NoError(t, err)
				p = got
				return true
			})
			require.NotEmpty(t, p.IDs, "woken by nothing new")
			order = append(order, p.IDs...)
			require.Equal(t, len(kids)-len(order), p.Left)
			if p.Left == 0 {
				break
			}
			require.NoError(t, b.commitAtLast([]store.Entry{rejoinOf(c, stream(1+rng.IntN(4)))}))
		}
		working.Wait()
		for range batches {
			require.NoError(t, <-errs)
		}
		var want []int64
		rows, err := b.pool.Query(t.Context(), byHand(`SELECT id FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY stream_nth`), parent)
		require.NoError(t, err)
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			want = append(want, id)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, want, order)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}
