package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// executing inserts a claimed row and its claim.
func (b bench) executing(more columns) *step.Claim {
	b.t.Helper()
	id := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "status": `'executing'`, "locked_by": quote(me), "claim_token": `7`,
		"lease_expires_at": `now() + interval '1 hour'`}.with(more))
	return &step.Claim{ID: id, Step: "s", Queue: "default", Token: 7, Visit: int64(b.number(`SELECT visit FROM gendurable.gen_durable WHERE id = $1`, id))}
}

// kidOf inserts a claimed child of a joiner.
func (b bench) kidOf(parent int64) *step.Claim {
	b.t.Helper()
	c := b.executing(columns{"parent_id": number(parent), "parent_round": `3`})
	c.Parent = parent
	return c
}

// joiner inserts a parent that waits for n children.
func (b bench) joiner(n int) int64 {
	b.t.Helper()
	return b.insert(columns{"fsm": `'m'`, "step": `'join'`, "status": `'awaiting_children'`, "children_pending": number(n), "round": `3`})
}

func kids(n int) []step.Spec { return (&scene{}).nChildren(n) }

func spawnOf(c *step.Claim, specs []step.Spec) store.Entry {
	return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Children, Step: "join", State: json.RawMessage(`{}`), Spawn: specs}}
}

func (b bench) column(sql string, args ...any) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), byHand(sql), args...)
	require.NoError(b.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return out
}

// T89: ids ascend in the order in which the outcome names the children, although rows are inserted
// in key order.
func TestSpawnOrderIsIdOrder(t *testing.T) {
	b := newBench(t)
	for _, keyed := range []bool{false, true} {
		one, two := b.executing(nil), b.executing(nil)
		var batch []store.Entry
		var want []string
		for _, c := range []*step.Claim{one, two} {
			specs := kids(20)
			for i := range specs {
				if keyed && i%3 > 0 {
					specs[i].Key = fmt.Sprintf("key %d of %d", 99-i, c.ID)
				}
				want = append(want, uuid.UUID(specs[i].UID).String())
			}
			batch = append(batch, spawnOf(c, specs))
		}
		b.commit(newMark(), keyed, batch...)
		require.Equal(t, want, b.column(`SELECT uid::text FROM gendurable.gen_durable WHERE parent_id IN ($1, $2) ORDER BY id`, one.ID, two.ID))
	}
}

func TestChildrenTakeEveryOption(t *testing.T) {
	b := newBench(t)
	c := b.executing(columns{"visit": `4`, "depth": `6`})
	c.Depth = 6
	soon, at := kids(1)[0], kids(1)[0]
	soon.Machine, soon.Version, soon.Step, soon.Queue, soon.Priority = "other", 3, "second", "elsewhere", -9
	soon.State, soon.PartitionKey, soon.Delay = json.RawMessage(`{"a": 1}`), "partition", time.Hour
	at.Key, at.Scope, at.At = "address", step.ScopeLiveOrFailed, tomorrow
	b.commit(newMark(), true, spawnOf(c, []step.Spec{soon, at}))

	require.Equal(t, []string{
		"other 3 second elsewhere -9 {\"a\": 1} partition - - {} 7 5 in 60 min",
		"kid 1 start kids 0 {} - address address {runnable,executing,awaiting_signal,awaiting_children,failed} 7 5 tomorrow",
	}, b.column(`SELECT concat_ws(' ', fsm, fsm_version, step, queue, priority, state, coalesce(partition_key, '-'), coalesce(correlation_key, '-'),
			coalesce(correlation_guard, '-'), correlation_scope, depth, parent_round,
			CASE WHEN eligible_at = $2 THEN 'tomorrow' ELSE 'in ' || round(extract(epoch FROM eligible_at - now()) / 60) || ' min' END)
		FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY id`, c.ID, tomorrow))
}

// The joining step sees which children were dropped, and in whose favour. The first of two equal
// keys wins, also across parents.
func TestDroppedChildren(t *testing.T) {
	b := newBench(t)
	occupant := b.keyed("taken")
	first, second := b.executing(nil), b.executing(nil)
	b.commit(newMark(), true,
		spawnOf(first, withKeys(kids(5), "mine", "taken", "mine", "", "shared")),
		spawnOf(second, withKeys(kids(2), "shared", "hers")))
	require.Equal(t, []string{"mine", "-", "shared"},
		b.column(`SELECT coalesce(correlation_key, '-') FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY id`, first.ID))
	require.Equal(t, []string{"3 awaiting_children", "1 awaiting_children"}, b.column(
		`SELECT children_pending || ' ' || status FROM gendurable.gen_durable WHERE id IN ($1, $2) ORDER BY id`, first.ID, second.ID))

	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', eligible_at = now() WHERE id IN ($1, $2)`, first.ID, second.ID)
	got := b.claim()
	require.Len(t, got.Claims, 2)
	holder := func(key string) int64 {
		return int64(b.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = $1`, key))
	}
	require.Equal(t, []step.Dropped{{Index: 1, Key: "taken", Occupant: occupant}, {Index: 2, Key: "mine", Occupant: holder("mine")}},
		got.Claims[0].Dropped)
	require.Equal(t, []step.Dropped{{Index: 0, Key: "shared", Occupant: holder("shared")}}, got.Claims[1].Dropped)
	require.True(t, got.Claims[0].Joins())

	b.outcome(got.Claims[0], step.Commit{Kind: step.Next, Step: "on"})
	require.Empty(t, b.claimOne().Dropped, "only the joining step sees them")
}

func ending(kind step.Kind) *step.Commit {
	if kind == step.Fail {
		return &step.Commit{Kind: kind, Err: "no", Failure: "error"}
	}
	return &step.Commit{Kind: kind, Result: json.RawMessage(`{}`)}
}

// T13, T42, T43: siblings that end in one batch cause one decrement per child, one aggregated write
// per parent, and one wake.
func TestManySiblingsEndInOneBatch(t *testing.T) {
	b := newBench(t)
	for _, slow := range []bool{false, true} {
		whole, part := b.joiner(60), b.joiner(60)
		var batch []store.Entry
		for i := range 60 {
			kind := step.Done
			if i%7 == 0 {
				kind = step.Fail
			}
			batch = append(batch, store.Entry{Claim: b.kidOf(whole), Commit: ending(kind)})
			if i > 0 {
				batch = append(batch, store.Entry{Claim: b.kidOf(part), Commit: ending(kind)})
			}
		}
		slices.Reverse(batch)
		got := b.commit(newMark(), slow, batch...)
		require.Equal(t, []string{"0 runnable", "1 awaiting_children"}, b.column(
			`SELECT children_pending || ' ' || status FROM gendurable.gen_durable WHERE id IN ($1, $2) ORDER BY id`, whole, part))
		require.Equal(t, []string{"default"}, got.Queues, "the parent's queue, once")
	}
}

// Commit reports where an outcome makes something runnable: the queues in which it is runnable at
// once, and for others how soon.
func TestCommitTellsWhereAndWhenSomethingIsRunnable(t *testing.T) {
	b := newBench(t)
	claim := func() *step.Claim {
		b.insert(columns{"fsm": `'machine'`, "fsm_version": `3`, "step": `'here'`})
		got, err := b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"machine/3"}, Limit: 1, Window: 1, Lease: lease})
		require.NoError(t, err)
		require.Len(t, got.Claims, 1)
		return got.Claims[0]
	}
	next := func(c step.Commit) store.Entry {
		c.Step, c.State = "there", json.RawMessage(`{}`)
		return store.Entry{Claim: claim(), Commit: &c}
	}
	stale := next(step.Commit{Kind: step.Next, Delay: time.Millisecond})
	stale.Claim.Token--
	got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{stale,
		next(step.Commit{Kind: step.Next, Delay: time.Minute}),
		next(step.Commit{Kind: step.Retry, Delay: time.Second}),
		next(step.Commit{Kind: step.Next, At: time.Now().Add(time.Hour)})}, 0)
	require.NoError(t, err)
	require.Len(t, got.Applied, 3)
	require.Empty(t, got.Queues)
	require.Equal(t, map[string]time.Duration{"default": time.Second}, got.Soon)

	got = b.commit(newMark(), false, next(step.Commit{Kind: step.Next, At: time.Now().Add(-time.Hour)}), next(step.Commit{Kind: step.Retry}))
	require.Equal(t, []string{"default"}, got.Queues)
	require.Empty(t, got.Soon)

	got = b.commit(newMark(), false, next(step.Commit{Kind: step.Children, Spawn: []step.Spec{
		{UID: uuid.New(), Machine: "machine", Version: 3, Step: "here", Queue: "now", State: json.RawMessage(`{}`)},
		{UID: uuid.New(), Machine: "machine", Version: 3, Step: "here", Queue: "later", State: json.RawMessage(`{}`), Delay: time.Minute},
	}}))
	require.Equal(t, []string{"now"}, got.Queues)
	require.Equal(t, map[string]time.Duration{"later": time.Minute}, got.Soon)
}

// Held returns a worker's claims in one queue, and no others.
func TestHeld(t *testing.T) {
	b := newBench(t)
	params := store.ClaimParams{Queue: "mine", Worker: me, Machines: []string{"machine/3"}, Limit: 10, Window: 10, Lease: lease}
	for _, queue := range []string{"mine", "mine", "another"} {
		b.insert(columns{"fsm": `'machine'`, "fsm_version": `3`, "step": `'here'`, "queue": `'` + queue + `'`, "partition_key": `gen_random_uuid()`})
	}
	got, err := b.Claim(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, got.Claims, 2)
	params.Queue = "another"
	_, err = b.Claim(t.Context(), params)
	require.NoError(t, err)
	b.commit(newMark(), false, store.Entry{Claim: got.Claims[0], Commit: ending(step.Done)})

	held, err := b.Held(t.Context(), me, "mine")
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.Equal(t, []any{got.Claims[1].ID, got.Claims[1].Token, got.Claims[1].PartitionKey}, []any{held[0].ID, held[0].Token, held[0].PartitionKey})
	held, err = b.Held(t.Context(), other, "mine")
	require.NoError(t, err)
	require.Empty(t, held)
}

// A parent that was deleted delays no child: an outcome or a sweep that ends its child ends it, and
// at once.
func TestChildOfAParentThatIsGone(t *testing.T) {
	b := newBench(t)
	parent := b.joiner(1)
	c := b.kidOf(parent)
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, parent)
	entry := store.Entry{Claim: c, Commit: ending(step.Done)}

	mark := newMark()
	got, err := b.Commit(t.Context(), me, mark, []store.Entry{entry}, 0)
	require.NoError(t, err)
	require.True(t, got.Applied[c.ID])
	verdict, err := b.Resolve(t.Context(), me, eachOf([]store.Entry{entry}, mark), []store.Entry{entry}, 0)
	require.NoError(t, err)
	require.Equal(t, store.Mine, verdict[c.ID])
	require.Equal(t, "done", b.status(c.ID))

	late := b.kidOf(parent).ID
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL, deadline = now() WHERE id = $1`, late)
	crashed := b.kidOf(parent).ID
	require.Equal(t, 1, b.reapOver())
	require.Equal(t, "failed", b.status(crashed))
	require.Equal(t, []int64{late}, b.sweepOverdue().Failed)
}

// children_pending never falls below the number of children left, whichever of two transactions
// ends the last children.
func TestSiblingsEndSideBySide(t *testing.T) {
	b := newBench(t)
	const each, lanes = 25, 4
	parent := b.joiner(each * lanes)
	done := make(chan error, lanes)
	for range lanes {
		var batch []store.Entry
		for range each {
			batch = append(batch, store.Entry{Claim: b.kidOf(parent), Commit: ending(step.Done)})
		}
		go func() {
			for len(batch) > 0 {
				got, err := b.Commit(t.Context(), me, newMark(), batch, patient)
				if err != nil {
					done <- err
					return
				}
				batch = slices.DeleteFunc(batch, func(e store.Entry) bool { return got.Applied[e.Claim.ID] })
			}
			done <- nil
		}()
	}
	for range lanes {
		require.NoError(t, <-done)
	}
	require.Equal(t, []string{"0 runnable"}, b.column(`SELECT children_pending || ' ' || status FROM gendurable.gen_durable WHERE id = $1`, parent))
}

// T52 for children: an insert and a spawn of the same new keys in opposite orders meet in the
// middle, and do not deadlock.
func TestKeyedChildrenGoInInKeyOrder(t *testing.T) {
	b := newBench(t)
	watch := &interloper{}
	watched := b.beside(watch.on, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["deadlock_timeout"] = "5ms" })
	parent := b.executing(nil)
	stranger := b.begin()
	b.inTx(stranger, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', 'k', `+liveScope+`)`)
	done := make(chan error, 2)
	go func() {
		_, err := watched.Insert(t.Context(), specsOf("a", "k", "z"))
		done <- err
	}()
	go func() {
		done <- watched.commitOnce([]store.Entry{spawnOf(parent, withKeys(kids(3), "z", "k", "a"))}, true)
	}()
	b.waiting(2)
	require.NoError(t, stranger.Rollback(t.Context()))
	require.NoError(t, errors.Join(<-done, <-done))
	require.Zero(t, watch.deadlocks.Load())
}
