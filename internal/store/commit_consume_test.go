package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// claim claims up to ten rows of the default queue for a worker that knows machine m, version 1.
func (b bench) claim(change ...func(*store.ClaimParams)) store.Claimed {
	b.t.Helper()
	p := store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 10, Window: 1000, Lease: lease}
	for _, f := range change {
		f(&p)
	}
	got, err := b.Claim(b.t.Context(), p)
	require.NoError(b.t, err)
	return got
}

// claimOne claims, and expects exactly one row.
func (b bench) claimOne() *step.Claim {
	b.t.Helper()
	got := b.claim()
	require.Len(b.t, got.Claims, 1)
	return got.Claims[0]
}

func (b bench) deliver(id int64, m *step.Signal) store.Delivery {
	b.t.Helper()
	d, err := b.Deliver(b.t.Context(), byID(id), m, 100)
	require.NoError(b.t, err)
	return d
}

func (b bench) inbox(id int64) (names []string) {
	b.t.Helper()
	list, _, err := b.Inbox(b.t.Context(), id, 0)
	require.NoError(b.t, err)
	for _, s := range list {
		names = append(names, s.Name+s.DedupKey)
	}
	return names
}

// outcome commits one outcome of a claim, in the fast lane.
func (b bench) outcome(c *step.Claim, o step.Commit) {
	b.t.Helper()
	if o.State == nil {
		o.State = json.RawMessage(`{}`)
	}
	b.commit(newMark(), false, store.Entry{Claim: c, Commit: &o})
}

// A Next consumes exactly the signals that the execution received: not those that came since, not
// those that it did not await, not another instance's.
func TestNextConsumesWhatItWasGiven(t *testing.T) {
	b := newBench(t)
	id, stranger := b.parked("go", "stop"), b.parked("go", "never")
	b.exec(`UPDATE gendurable.gen_durable SET queue = 'elsewhere' WHERE id = $1`, stranger)
	for _, to := range []int64{id, stranger} {
		b.deliver(to, deduped("go", "-1"))
		b.deliver(to, named("unasked"))
		b.deliver(to, named("stop"))
		b.deliver(to, deduped("go", "-2"))
	}
	c := b.claimOne()
	require.Equal(t, []string{"go", "stop", "go"}, namesOf(c.Awaited))
	require.Equal(t, "-1", c.Awaited[0].DedupKey)
	require.JSONEq(t, `{"n": 1}`, string(c.Awaited[1].Payload))
	b.deliver(id, named("go"))
	b.deliver(id, deduped("stop", "-3"))
	b.outcome(c, step.Commit{Kind: step.Next, Step: "two"})

	require.Equal(t, []string{"unasked", "go", "stop-3"}, b.inbox(id))
	require.Equal(t, []string{"go-1", "unasked", "stop", "go-2"}, b.inbox(stranger))
	require.True(t, b.deliver(id, deduped("go", "-1")).Duplicate, "a consumed signal leaves its dedup key")
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.signals WHERE target_id = $1 AND consumed_at IS NOT NULL AND payload = '{}'`, id))
}

func namesOf(list []step.Signal) (names []string) {
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

func TestTombstonesAreNeitherGivenNorAwaited(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	b.deliver(id, deduped("go", "-1"))
	b.outcome(b.claimOne(), step.Commit{Kind: step.Next, Step: "two"})
	b.outcome(b.claimOne(), step.Commit{Kind: step.Await, Step: "three", Names: []string{"go"}})
	require.Equal(t, "awaiting_signal", b.status(id), "the tombstone matches nothing")
	require.True(t, b.deliver(id, named("go")).Woken)
	require.Equal(t, []string{"go"}, namesOf(b.claimOne().Awaited))
}

// A dedup key holds until the instance ends. Done deletes the whole inbox, and Fail keeps it for a
// redrive. Neither touches another inbox.
func TestTheEndOfAnInbox(t *testing.T) {
	b := newBench(t)
	for kind, left := range map[step.Kind]int{step.Done: 0, step.Fail: 3} {
		id := b.parked("go")
		b.deliver(id, deduped("go", "-1"))
		b.outcome(b.claimOne(), step.Commit{Kind: step.Next, Step: "two"})
		c := b.claimOne()
		b.deliver(id, named("late"))
		b.deliver(id, deduped("late", "-2"))
		o := step.Commit{Kind: kind}
		if kind == step.Fail {
			o.Err, o.Failure = "no", "decided"
		} else {
			o.Result = json.RawMessage(`{}`)
		}
		b.outcome(c, o)
		require.Equal(t, left, b.number(`SELECT count(*) FROM gendurable.signals WHERE target_id = $1`, id), kind)
		_, err := b.Deliver(t.Context(), byID(id), named("go"), cap10)
		require.ErrorIs(t, err, store.ErrNoTarget)
	}
}

// T2: the commit recognises the signals that an execution received by their ids, not by a
// high-water mark, since ids commit out of order.
func TestParkingTowardsItselfSeesAnOlderId(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	stranger := b.begin()
	b.inTx(stranger, `INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, id) // it draws the lower id and commits later
	b.exec(`INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, id)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable' WHERE id = $1`, id)
	c := b.claimOne()
	require.Len(t, c.Awaited, 1)
	require.NoError(t, stranger.Commit(t.Context()))
	b.outcome(c, step.Commit{Kind: step.Await, Step: c.Step, Names: []string{"go"}})
	require.Equal(t, "runnable", b.status(id))

	c = b.claimOne()
	require.Len(t, c.Awaited, 2)
	b.outcome(c, step.Commit{Kind: step.Await, Step: c.Step, Names: []string{"go"}})
	require.Equal(t, "awaiting_signal", b.status(id), "nothing new: no busy loop")
}

// openDelivery makes another session deliver like the engine, and leaves the transaction open.
func (b bench) openDelivery(id int64) (commit func()) {
	b.t.Helper()
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)
	b.inTx(stranger, `INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, id)
	return func() { require.NoError(b.t, stranger.Commit(b.t.Context())) }
}

// T1, T3, from the commit's side: a delivery came first and is still open.
func TestOutcomeBehindADelivery(t *testing.T) {
	b := newBench(t)
	for _, o := range []step.Commit{
		{Kind: step.Await, Step: "two", Names: []string{"go"}, State: json.RawMessage(`{}`)},
		{Kind: step.Done, Result: json.RawMessage(`{}`)},
	} {
		id := b.row("", "")
		c := b.claimOne()
		deliver := b.openDelivery(id)
		result := make(chan error, 1)
		go func() {
			_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: c, Commit: &o}}, patient)
			result <- err
		}()
		b.waiting(1)
		deliver()
		require.NoError(t, <-result)
		if o.Kind == step.Await {
			require.Equal(t, "runnable", b.status(id), "parked with a signal it awaits")
			b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, id)
			continue
		}
		require.Equal(t, "done", b.status(id))
		require.Zero(t, b.signals(id), "an orphan in the inbox of what is done")
	}
}
