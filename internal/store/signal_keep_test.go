package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// toKeep is a signal to be kept for an hour.
func toKeep(name, dedup string) *step.Signal {
	m := deduped(name, dedup)
	m.Keep = time.Hour
	return m
}

func (b bench) keep(key string, m *step.Signal) store.Delivery {
	b.t.Helper()
	d, err := b.Keep(b.t.Context(), byKey(key), m, 100)
	require.NoError(b.t, err)
	return d
}

func (b bench) handOver() (queues []string) {
	b.t.Helper()
	for last := ""; ; {
		done, err := b.HandOver(b.t.Context(), last)
		require.NoError(b.t, err)
		require.Empty(b.t, done.Refused)
		queues = append(queues, done.Queues...)
		if last = done.Last; last == "" {
			return queues
		}
	}
}

func (b bench) kept() int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM gendurable.kept_signals`)
}

func TestKeep(t *testing.T) {
	b := newBench(t)
	require.Equal(t, store.Delivery{Kept: true}, b.keep("k", toKeep("go", "a")))
	require.Equal(t, store.Delivery{Kept: true, Duplicate: true}, b.keep("k", toKeep("go", "a")))
	require.Equal(t, store.Delivery{Kept: true}, b.keep("k", toKeep("stop", "")))
	require.Equal(t, store.Delivery{Kept: true}, b.keep("k", toKeep("stop", "")))
	require.Equal(t, store.Delivery{Kept: true}, b.keep("other", toKeep("go", "a")))
	require.Empty(t, b.left(), "nobody sees the instance that holds the key meanwhile")
	_, err := b.Keep(t.Context(), byKey("k"), toKeep("go", "b"), 3)
	require.ErrorIs(t, err, store.ErrInboxFull)
	d, err := b.Keep(t.Context(), byKey("k"), toKeep("go", "a"), 3)
	require.NoError(t, err)
	require.True(t, d.Duplicate, "also where it is full")

	marked := newSpec("k") // no occupant
	marked.Scope = step.ScopeNone
	b.insertSpecs([]*step.Spec{marked})
	require.Equal(t, 4, b.kept())
	id := b.insertSpecs([]*step.Spec{newSpec("k")})[0].ID
	require.Equal(t, []string{"goa", "stop", "stop"}, b.inbox(id))
	require.Equal(t, 1, b.kept())
	require.Equal(t, "runnable", b.status(id))
	d = b.keep("k", toKeep("go", "a"))
	require.Equal(t, id, d.Target)
	require.True(t, d.Duplicate, "of the one that was kept")
	require.Equal(t, id, b.keep("k", toKeep("go", "b")).Target)

	ended := b.row("status, finished_at, correlation_key, correlation_scope", "'done', now(), 'ended', enum_range(NULL::gendurable.durable_status)")
	_, err = b.Keep(t.Context(), byKey("ended"), toKeep("go", ""), 100)
	var held *store.EndedError
	require.ErrorAs(t, err, &held)
	require.Equal(t, ended, held.Occupant)
}

// takers are the verbs that insert a key, and take what is kept for it.
var takers = map[string]func(b bench, x *step.Spec){
	"insert": func(b bench, x *step.Spec) { b.insertSpecs([]*step.Spec{x}) },
	"among others": func(b bench, x *step.Spec) {
		b.insertSpecs([]*step.Spec{newSpec(""), x, newSpec("free beside " + x.Key)})
	},
	"by a policy": func(b bench, x *step.Spec) {
		x.Conflict = step.ConflictNewest
		b.insertSpecs([]*step.Spec{x})
	},
	"hosted": func(b bench, x *step.Spec) {
		tx := b.begin()
		_, _, err := b.Within(store.Pgx(tx)).Insert(b.t.Context(), []*step.Spec{x}, store.By{})
		require.NoError(b.t, err)
		require.NoError(b.t, tx.Commit(b.t.Context()))
	},
	"signal with start": func(b bench, x *step.Spec) {
		_, err := b.DeliverOrInsert(b.t.Context(), x, named("last"), 100)
		require.NoError(b.t, err)
	},
	"child": func(b bench, x *step.Spec) { b.commit(newMark(), false, spawnOf(b.executing(nil), []step.Spec{*x})) },
}

// Each verb that inserts a key takes the signals that are kept for it, in its own transaction.
func TestEveryInsertTakesWhatIsKept(t *testing.T) {
	b := newBench(t)
	for name, insert := range takers {
		b.keep(name, toKeep("go", ""))
		insert(b, newSpec(name))
		b.hasTaken(name)
	}
}

// hasTaken requires that the occupant of a key has the signal that was kept, before any other.
func (b bench) hasTaken(key string) {
	b.t.Helper()
	id := int64(b.number(`SELECT id FROM gendurable.gen_durable WHERE correlation_guard = $1`, key))
	require.Equal(b.t, "go", append(b.inbox(id), "nothing")[0], key)
	require.Zero(b.t, b.kept(), key)
}

// So does each verb of a process that was started while nothing was kept, and has not polled since.
func TestTheFirstInsertTakesWhatIsKept(t *testing.T) {
	b := newBench(t)
	for name, insert := range takers {
		fresh := benchOn(t, b.pool)
		require.NoError(t, fresh.NoteKeeping(t.Context()))
		insert(fresh, newSpec("before "+name))
		require.False(t, fresh.Keeping())
		b.keep(name, toKeep("go", ""))
		insert(fresh, newSpec(name))
		b.hasTaken(name)
	}
}

// The keeper has the key first, and the insertion of a process that knows of no kept signal waits.
func TestTheFirstInsertBehindAKeeper(t *testing.T) {
	b := newBench(t)
	fresh := benchOn(t, b.pool)
	require.NoError(t, fresh.NoteKeeping(t.Context()))
	tx := b.begin()
	_, err := b.Within(store.Pgx(tx)).Keep(t.Context(), byKey("k"), toKeep("go", ""), 100)
	require.NoError(t, err)
	inserted := make(chan error, 1)
	go func() {
		_, err := fresh.Insert(t.Context(), []*step.Spec{newSpec("k")})
		inserted <- err
	}()
	b.waiting(1)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-inserted)
	b.hasTaken("k")
}

// The new instance of a signal with start takes what is kept first. So the signal is a duplicate of
// a kept one with its dedup key, whichever way it is sent.
func TestSignalWithStartBehindItsKeptTwin(t *testing.T) {
	b := newBench(t)
	b.keep("k", toKeep("go", "a"))
	d, err := b.DeliverOrInsert(t.Context(), newSpec("k"), deduped("stop", "a"), 100)
	require.NoError(t, err)
	require.True(t, d.Inserted)
	require.True(t, d.Duplicate)
	require.Equal(t, []string{"goa"}, b.inbox(d.Target))
}

// The insertion has the key first. The keeper waits for it, and delivers to the new instance; or
// keeps if there is none after all.
func TestKeepBehindAnInsert(t *testing.T) {
	b := newBench(t)
	for _, commits := range []bool{true, false} {
		key := fmt.Sprint("k", commits)
		tx := b.begin()
		in, _, err := b.Within(store.Pgx(tx)).Insert(t.Context(), []*step.Spec{newSpec(key)}, store.By{})
		require.NoError(t, err)
		kept := make(chan store.Delivery, 1)
		go func() {
			d, err := b.Keep(t.Context(), byKey(key), toKeep("go", ""), 100)
			if err != nil {
				t.Error(err)
			}
			kept <- d
		}()
		b.waiting(1)
		if !commits {
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, store.Delivery{Kept: true}, <-kept)
			require.Equal(t, 1, b.kept())
			continue
		}
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, in[0].ID, (<-kept).Target)
		require.Equal(t, []string{"go"}, b.inbox(in[0].ID))
		require.Zero(t, b.kept())
	}
}

// The keeper has the key first. The insertion waits for it, and finds the signal; or nothing if the
// keeper has kept nothing after all. Two keepers follow each other likewise.
func TestInsertBehindAKeep(t *testing.T) {
	b := newBench(t)
	for _, commits := range []bool{true, false} {
		key := fmt.Sprint("k", commits)
		tx := b.begin()
		d, err := b.Within(store.Pgx(tx)).Keep(t.Context(), byKey(key), toKeep("go", "a"), 100)
		require.NoError(t, err)
		require.True(t, d.Kept)
		second := make(chan store.Delivery, 1)
		go func() {
			d, err := b.Keep(t.Context(), byKey(key), toKeep("go", "a"), 100)
			if err != nil {
				t.Error(err)
			}
			second <- d
		}()
		b.waiting(1)
		if commits {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		require.Equal(t, store.Delivery{Kept: true, Duplicate: commits}, <-second)
		require.Equal(t, 1, b.kept())

		tx = b.begin()
		_, err = b.Within(store.Pgx(tx)).Keep(t.Context(), byKey(key), toKeep("stop", ""), 100)
		require.NoError(t, err)
		inserted := b.inserting(newSpec(key))
		b.waiting(1)
		want := []string{"goa"}
		if commits {
			require.NoError(t, tx.Commit(t.Context()))
			want = append(want, "stop")
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		require.Equal(t, want, b.inbox((<-inserted).ID))
		require.Zero(t, b.kept())
	}
}

// A process that does not know of kept signals leaves them to the sweep, and so does an operator's
// Retry. The sweep wakes who awaits one, passes over who is locked, and counts what has expired.
func TestSweepOfKeptSignals(t *testing.T) {
	b := newBench(t)
	other := b.beside(func(*pgxpool.Config) {})
	b.keep("k", toKeep("go", ""))
	b.keep("k", toKeep("stop", ""))
	id := other.insertSpecs([]*step.Spec{newSpec("k")})[0].ID
	require.Empty(t, b.inbox(id), "off costs nothing")
	require.NoError(t, other.NoteKeeping(t.Context()))
	b.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{stop}', queue = 'q', inserted_at = now() - interval '1 hour' WHERE id = $1`, id)
	tx := b.begin()
	b.inTx(tx, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`, id)
	require.Empty(t, b.handOver())
	b.exec(`UPDATE gendurable.kept_signals SET inserted_at = now() - interval '2 hours', expires_at = now()`)
	require.Equal(t, store.Pruned{}, b.prune(aDay), "they are of an instance that came in time")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{"q"}, b.handOver())
	require.Equal(t, []string{"go", "stop"}, b.inbox(id))
	require.Equal(t, "runnable", b.status(id))

	b.keep("late", toKeep("go", "a"))
	b.keep("late", toKeep("go", "b"))
	b.exec(`UPDATE gendurable.kept_signals SET expires_at = now() - interval '1 second' WHERE dedup_key = 'a'`)
	require.Equal(t, store.Delivery{Kept: true}, b.keep("late", toKeep("go", "a")), "the one before has expired")
	b.exec(`UPDATE gendurable.kept_signals SET expires_at = now() - interval '1 second' WHERE dedup_key = 'a'`)
	late := other.insertSpecs([]*step.Spec{newSpec("late")})[0].ID
	require.Equal(t, []string{"gob"}, b.inbox(late))
	require.Equal(t, store.Pruned{Expired: 1}, b.prune(aDay))
	require.Zero(t, b.kept())

	parent := b.joiner(2)
	b.exec(`UPDATE gendurable.gen_durable SET correlation_key = 'parent', correlation_scope = `+liveScope+`, awaits = '{go}', join_round = round, join_size = 2,
		join_done = 0, join_failed = 0, wake_done = 2, await_deadline = now() + interval '1 hour' WHERE id = $1`, parent)
	b.exec(`INSERT INTO gendurable.kept_signals (key, name, expires_at) VALUES ('parent', 'go', now() + interval '1 hour')`)
	require.Equal(t, []string{"default"}, b.handOver())
	require.Equal(t, "runnable", b.status(parent), "it awaited its children, or this")
}
