package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// cancelRest cancels what no join waits for, as a worker does: until a pass finds nothing.
func (b bench) cancelRest() (cancelled []int64) {
	b.t.Helper()
	for after := int64(0); ; {
		got, err := b.CancelRest(b.t.Context(), newMark(), after, 200)
		require.NoError(b.t, err)
		require.Empty(b.t, got.Refused)
		cancelled = append(cancelled, got.Cancelled...)
		switch {
		case got.Full || len(got.Cancelled) > 0:
		case got.Last > 0:
			after = got.Last
		default:
			return cancelled
		}
	}
}

// restDue reports what a poll finds.
func (b bench) restDue() bool {
	b.t.Helper()
	got, err := b.Poll(b.t.Context(), nil, nil, nil)
	require.NoError(b.t, err)
	return got.Rest
}

func claimIDs(claims []*step.Claim) (ids []int64) {
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// The rest is cancelled however the wait ends, also by a process that does not know of losers, and
// not while the parent waits. Nothing else of the parent changes.
func TestRestIsCancelledHoweverTheWaitEnds(t *testing.T) {
	b := newBench(t)
	join := func() *step.Join {
		return &step.Join{Done: 2, Names: []string{"go"}, Timeout: time.Hour, Cancel: true}
	}
	for name, end := range map[string]func(parent int64, kids []*step.Claim){
		"quorum": func(_ int64, kids []*step.Claim) {
			require.True(t, b.commit(newMark(), false, endOf(kids[1], true), endOf(kids[2], true)).Rest)
		},
		"signal": func(parent int64, _ []*step.Claim) { require.True(t, b.deliver(parent, named("go")).Woken) },
		"function": func(parent int64, _ []*step.Claim) {
			b.exec(`SELECT gendurable.gen_durable_signal('go', target => $1)`, parent)
		},
		"timeout": func(parent int64, _ []*step.Claim) {
			b.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() WHERE id = $1`, parent)
			_, err := b.TimeOut(t.Context(), 10)
			require.NoError(t, err)
		},
		"cancel": func(parent int64, _ []*step.Claim) {
			_, err := b.Operate(t.Context(), []int64{parent}, &store.Order{Verb: store.Cancel, Mark: newMark(), Most: 10})
			require.NoError(t, err)
		},
		"deadline": func(parent int64, _ []*step.Claim) {
			b.exec(`UPDATE gendurable.gen_durable SET deadline = now() WHERE id = $1`, parent)
			require.Equal(t, []int64{parent}, b.sweepOverdue().Failed)
		},
	} {
		parent, kids := b.policedParent(4, join())
		require.False(t, b.commit(newMark(), false, endOf(kids[0], false)).Rest)
		require.False(t, b.restDue(), name)
		require.Empty(t, b.cancelRest(), name)
		end(parent, kids)
		require.NotEqual(t, "awaiting_children", b.status(parent), name)
		require.True(t, b.restDue(), name)
		var live []int64
		for _, kid := range kids {
			if b.status(kid.ID) == "executing" {
				live = append(live, kid.ID)
			}
		}
		was := b.text(`SELECT (to_jsonb(g) - 'losers')::text FROM gendurable.gen_durable g WHERE id = $1`, parent)
		require.ElementsMatch(t, live, b.cancelRest(), name)
		require.Equal(t, was, b.text(`SELECT (to_jsonb(g) - 'losers')::text FROM gendurable.gen_durable g WHERE id = $1 AND losers IS NULL`, parent), name)
		require.Equal(t, len(live), b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND failure = 'cancelled'
			AND status = 'failed' AND joined = commit_id AND last_error = 'cancelled: its parent does not wait for it any more'`, parent))
		require.False(t, b.restDue(), name)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// While the sweep has a woken parent locked, a claim passes over it. So the sweep tells its process
// to claim again in the parent's queue, if a claim could take the parent.
func TestRestAnnouncesTheParentsItLocked(t *testing.T) {
	b := newBench(t)
	parent, children := b.policedParent(2, &step.Join{Ended: 1, Cancel: true})
	b.commit(newMark(), false, endOf(children[0], true), endOf(children[1], true))
	b.exec(`UPDATE gendurable.gen_durable SET queue = 'slow' WHERE id = $1`, parent)
	sweep := func() []string {
		got, err := b.CancelRest(t.Context(), newMark(), 0, 200)
		require.NoError(t, err)
		return got.Queues
	}
	require.Equal(t, []string{"slow"}, sweep())
	require.Empty(t, sweep(), "nothing is due any more")
	b.exec(`UPDATE gendurable.gen_durable SET losers = ARRAY[round], paused = true WHERE id = $1`, parent)
	require.Empty(t, sweep(), "nobody claims it")
	b.exec(`UPDATE gendurable.gen_durable SET losers = ARRAY[round], paused = false, status = 'executing', locked_by = 'w', lease_expires_at = now() WHERE id = $1`, parent)
	require.Empty(t, sweep(), "it has been claimed")
}

// The parent has gone on to a later round before the rest of the one before is cancelled: that
// neither cancels nor counts children of the later one, whether it has a policy, cancels its own
// rest, or not.
func TestRestLeavesALaterRoundAlone(t *testing.T) {
	b := newBench(t)
	for name, later := range map[string]*step.Join{"none": nil, "quorum": {Done: 2}, "rest, too": {Done: 1, Cancel: true}} {
		parent, first := b.policedParent(3, &step.Join{Ended: 1, Cancel: true})
		b.commit(newMark(), false, endOf(first[0], true))
		c := b.claimOne()
		require.Equal(t, parent, c.ID, name)
		e := spawnOf(c, kids(3))
		e.Commit.Join = later
		b.commit(newMark(), false, e)
		require.True(t, b.restDue(), name)
		second := b.runKids(parent)[3:]
		require.ElementsMatch(t, claimIDs(first[1:]), b.cancelRest(), name)
		require.Equal(t, "awaiting_children", b.status(parent), name)
		require.Equal(t, 3, b.number(`SELECT children_pending - coalesce(join_failed, 0) * (join_round = round)::int FROM gendurable.gen_durable WHERE id = $1`, parent))
		require.False(t, b.restDue(), name)
		for _, kid := range second {
			kid.ParentRound = 2
		}
		b.commit(newMark(), false, endOf(second[0], true))
		require.Equal(t, name == "rest, too", len(b.cancelRest()) == 2, name)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}

// The instances that losers have spawned are cancelled with them, generation by generation, of all
// rounds. Children of one that has ended by itself go on.
func TestRestTakesDescendantsAlong(t *testing.T) {
	b := newBench(t)
	parent, children := b.policedParent(3, &step.Join{Ended: 1, Cancel: true})
	ended := b.kidOf(children[0].ID).ID
	var below []int64
	for _, of := range []int64{children[1].ID, children[1].ID, children[2].ID} {
		below = append(below, b.kidOf(of).ID)
	}
	b.exec(`UPDATE gendurable.gen_durable SET parent_round = 4 WHERE id = $1`, below[0])
	below = append(below, b.kidOf(below[0]).ID)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_children', children_pending = 1, round = 3, locked_by = NULL, lease_expires_at = NULL,
		losers = '{3}' WHERE id = ANY($1)`, []int64{children[2].ID, below[0]})
	b.commit(newMark(), false, endOf(children[0], true))
	require.ElementsMatch(t, append(claimIDs(children[1:]), below...), b.cancelRest())
	require.Equal(t, "executing", b.status(ended))
	require.Equal(t, "runnable", b.status(parent))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE losers IS NOT NULL`))
}

// The sweep waits for no transaction. It leaves locked children, and children of a locked parent,
// to the next sweep, and cancels the others.
func TestRestLeavesToOthers(t *testing.T) {
	b := newBench(t)
	held, of := b.policedParent(3, &step.Join{Ended: 1, Cancel: true})
	_, free := b.policedParent(3, &step.Join{Ended: 1, Cancel: true})
	b.commit(newMark(), false, endOf(of[0], true), endOf(free[0], true))
	holder := b.begin()
	b.inTx(holder, `SELECT FROM gendurable.gen_durable WHERE id IN ($1, $2) FOR NO KEY UPDATE`, held, free[1].ID)
	require.Equal(t, claimIDs(free[2:]), b.cancelRest())
	require.True(t, b.restDue())
	require.NoError(t, holder.Rollback(t.Context()))
	require.ElementsMatch(t, append(claimIDs(of[1:]), free[1].ID), b.cancelRest())
	require.False(t, b.restDue())
}

// T22: a row that Postgres refuses to change is named, and set apart; the others are cancelled.
func TestRestAroundARowThatCannotChange(t *testing.T) {
	for _, body := range refusals {
		t.Run(body, func(t *testing.T) { restAround(t, body) })
	}
}

func restAround(t *testing.T, body string) {
	b := newBench(t)
	_, children := b.policedParent(5, &step.Join{Ended: 1, Cancel: true})
	b.commit(newMark(), false, endOf(children[0], true))
	b.refuse(body, children[2].ID)
	got, err := b.CancelRest(t.Context(), newMark(), 0, 200)
	require.NoError(t, err)
	requireRefused(t, []int64{children[2].ID}, got.Refused)
	require.ElementsMatch(t, []int64{children[1].ID, children[3].ID, children[4].ID}, got.Cancelled)
	got, err = b.CancelRest(t.Context(), newMark(), 0, 200)
	require.NoError(t, err)
	require.Empty(t, got.Cancelled)
	require.True(t, b.restDue())
}

// A loser that an operator's Retry lets run again goes on, though a sibling is locked and so its
// round stays due. The round is forgotten once no other child lives.
func TestRestLeavesWhatWasRetried(t *testing.T) {
	b := newBench(t)
	_, children := b.policedParent(3, &step.Join{Ended: 1, Cancel: true})
	b.commit(newMark(), false, endOf(children[0], true))
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, children[2].ID)
	got, err := b.CancelRest(t.Context(), newMark(), 0, 200)
	require.NoError(t, err)
	require.Equal(t, []int64{children[1].ID}, got.Cancelled)
	require.Len(t, b.operate(store.Order{Verb: store.Retry}, children[1].ID).Changed, 1)
	for range 2 {
		got, err = b.CancelRest(t.Context(), newMark(), 0, 200)
		require.NoError(t, err)
		require.Empty(t, got.Cancelled)
		require.True(t, b.restDue())
	}
	require.NoError(t, stranger.Rollback(t.Context()))
	got, err = b.CancelRest(t.Context(), newMark(), 0, 200)
	require.NoError(t, err)
	require.Equal(t, []int64{children[2].ID}, got.Cancelled)
	require.False(t, b.restDue())
	require.Equal(t, "runnable", b.status(children[1].ID))
}

// A key goes on with its next row. The claim of a loser that executes under one is noted as lost,
// since its step may still run. Recorded machines get a row in the history.
func TestRestDoesWhatACancelDoes(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.SetRecorded(t.Context(), []string{"kid"}, nil))
	_, children := b.policedParent(3, &step.Join{Ended: 1, Cancel: true})
	next := b.insert(plain.with(columns{"partition_key": `'k1'`, "pick_lane": `1`}))
	b.exec(`UPDATE gendurable.gen_durable SET partition_key = 'k1' WHERE id = $1`, children[1].ID)
	b.exec(`UPDATE gendurable.gen_durable SET partition_key = 'k2', status = 'runnable', locked_by = NULL, lease_expires_at = NULL,
		gate = 'g', place = 1, run_gate = 'g', run_place = 1 WHERE id = $1`, children[2].ID)
	b.deliver(children[1].ID, named("kept"))
	b.commit(newMark(), false, endOf(children[0], true))
	got, err := b.CancelRest(t.Context(), newMark(), 0, 200)
	require.NoError(t, err)
	require.ElementsMatch(t, claimIDs(children[1:]), got.Cancelled)
	require.Equal(t, []string{"default", "default", "default"}, got.Queues, "of the parent, by its rest and by the ends, and of the key")
	require.Equal(t, 0, b.number(`SELECT pick_lane FROM gendurable.gen_durable WHERE id = $1`, next))
	require.Equal(t, []string{"k1 " + me + " 7"}, b.column(`SELECT concat_ws(' ', partition_key, worker, claim_token) FROM gendurable.lost_claims`))
	require.Equal(t, 1, b.signals(children[1].ID), "as a Fail, it leaves the inbox")
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE failure = 'cancelled' AND (place IS NOT NULL OR locked_by IS NOT NULL)`))
	require.Equal(t, []string{fmt.Sprintf("%d join.cancel start cancelled %s", children[1].ID, me), fmt.Sprintf("%d join.cancel start cancelled", children[2].ID)},
		b.column(`SELECT concat_ws(' ', instance, kind, step, failure, worker) FROM gendurable.history WHERE kind = 'join.cancel' ORDER BY instance`))
}

// A round of many goes in slices, and parents that have nothing left go without them.
func TestRestGoesInSlices(t *testing.T) {
	b := newBench(t)
	_, children := b.policedParent(450, &step.Join{Ended: 1, Cancel: true})
	for range 120 {
		_, few := b.policedParent(1, &step.Join{Cancel: true})
		b.commit(newMark(), false, endOf(few[0], true))
	}
	b.commit(newMark(), false, endOf(children[0], true))
	var sizes []string
	for after, full := int64(0), true; full || after > 0; {
		got, err := b.CancelRest(t.Context(), newMark(), after, 200)
		require.NoError(t, err)
		if full = got.Full; !full {
			after = got.Last
		}
		sizes = append(sizes, fmt.Sprint(len(got.Cancelled)))
	}
	require.Equal(t, "200 200 49", strings.Join(sizes, " "))
	require.False(t, b.restDue())
}
