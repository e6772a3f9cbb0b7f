package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const lockRow = `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`

// After a commit without an answer each outcome is decided by its own row, and none waits. An
// applied outcome is recognised also while another session holds its row. An outcome that the
// attempt's old backend may still apply is Held until that backend ends.
func TestResolveDecidesRowByRow(t *testing.T) {
	b := newBench(t)
	mark := newMark()
	entry := func(c *step.Claim) store.Entry { return store.Entry{Claim: c, Commit: ending(step.Done)} }
	applied, appliedHeld := b.executing(nil), b.executing(nil)
	b.commit(mark, false, entry(applied), entry(appliedHeld))
	current, held, unfinished, stale, gone := b.executing(nil), b.executing(nil), b.executing(nil), b.executing(nil), b.executing(nil)
	freeChild, heldChild := b.kidOf(b.joiner(1)), b.kidOf(b.joiner(1))
	stale.Token--
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, gone.ID)

	stranger := b.begin()
	for _, id := range []int64{appliedHeld.ID, held.ID, heldChild.Parent} {
		b.inTx(stranger, lockRow, id)
	}
	backend := b.begin() // as an attempt that has done all but its COMMIT
	b.inTx(backend, `UPDATE gendurable.gen_durable SET status = 'done', result = '{}', finished_at = now(), locked_by = NULL,
		lease_expires_at = NULL, commit_id = $2 WHERE id = $1`, unfinished.ID, mark)

	all := []store.Entry{entry(applied), entry(appliedHeld), entry(current), entry(held), entry(unfinished), entry(stale), entry(gone),
		entry(freeChild), entry(heldChild)}
	want := map[int64]store.Verdict{applied.ID: store.Mine, appliedHeld.ID: store.Mine, current.ID: store.Current, held.ID: store.Held,
		unfinished.ID: store.Held, stale.ID: store.Stale, gone.ID: store.Stale, freeChild.ID: store.Current, heldChild.ID: store.Held}
	got, err := b.Resolve(t.Context(), me, eachOf(all, mark), all, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)

	require.NoError(t, backend.Commit(t.Context()))
	want[unfinished.ID] = store.Mine
	got, err = b.Resolve(t.Context(), me, eachOf(all, mark), all, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)

	// An outcome whose row is always locked by some session is waited for.
	verdicts := make(chan map[int64]store.Verdict, 1)
	go func() {
		got, err := b.Resolve(context.WithoutCancel(t.Context()), me, eachOf([]store.Entry{entry(held)}, mark), []store.Entry{entry(held)}, patient)
		if err == nil {
			verdicts <- got
		}
		close(verdicts)
	}()
	b.waiting(1)
	require.NoError(t, stranger.Rollback(t.Context()))
	require.Equal(t, map[int64]store.Verdict{held.ID: store.Current}, <-verdicts)
}

// eachOf returns the same marks for each of some entries.
func eachOf(entries []store.Entry, marks ...string) [][]string {
	return slices.Repeat([][]string{marks}, len(entries))
}

// Two kept outcomes were sent together, and one was left out. Both instances' next attempts leave
// out both. The one that was applied is not taken for its next outcome, although the other one has
// been tried under the mark that its row bears.
func TestAnOutcomeIsNotResolvedByAnothersMark(t *testing.T) {
	b := newBench(t)
	kept := func(c *step.Claim) store.Entry {
		return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Next, Step: "next", State: []byte("{}")}, Keep: true}
	}
	moves, held := b.executing(nil), b.executing(nil)
	stranger := b.begin()
	b.inTx(stranger, lockRow, held.ID)
	first, second := newMark(), newMark()
	got, err := b.Commit(t.Context(), me, first, []store.Entry{kept(moves), kept(held)}, 0)
	require.NoError(t, err)
	require.Equal(t, map[int64]bool{moves.ID: true}, got.Applied)

	moves.Visit++
	b.inTx(stranger, lockRow, moves.ID)
	both := []store.Entry{kept(moves), kept(held)}
	got, err = b.Commit(t.Context(), me, second, both, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied)
	verdicts, err := b.Resolve(t.Context(), me, [][]string{{second}, {first, second}}, both, 0)
	require.NoError(t, err)
	require.Equal(t, map[int64]store.Verdict{moves.ID: store.Held, held.ID: store.Held}, verdicts)
}

// An outcome whose children have correlation keys waits for no row, and only for a moment for a
// transaction that is inserting the same key.
func TestKeyedChildrenDoNotWaitForRows(t *testing.T) {
	b := newBench(t)
	kid := func(key string) []step.Spec {
		specs := kids(1)
		specs[0].Key = key
		return specs
	}
	held, blocked := b.executing(nil), b.executing(nil)
	stranger := b.begin()
	b.inTx(stranger, lockRow, held.ID)
	b.inTx(stranger, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', 'being inserted', `+liveScope+`)`)

	got, err := b.Commit(t.Context(), me, newMark(), []store.Entry{spawnOf(held, kid("free"))}, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied, "left out")
	_, err = b.Commit(t.Context(), me, newMark(), []store.Entry{spawnOf(blocked, kid("being inserted"))}, 0)
	require.True(t, store.IsLockTimeout(err), err)
	require.False(t, store.Unknown(err))
	require.Equal(t, "executing", b.status(blocked.ID))

	require.NoError(t, stranger.Rollback(t.Context()))
	for _, e := range []store.Entry{spawnOf(held, kid("free")), spawnOf(blocked, kid("being inserted"))} {
		b.commit(newMark(), false, e)
	}
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id IS NOT NULL`))
}

// Commits that wait for rows leave a connection of the pool to commits that need not wait. Once the
// last turn is taken, another commit goes on without waiting.
func TestWaitingCommitsLeaveAConnection(t *testing.T) {
	b := newBench(t)
	small := b.beside(func(c *pgxpool.Config) { c.MaxConns = 2 })
	first, second, free := b.executing(nil), b.executing(nil), b.executing(nil)
	stranger := b.begin()
	b.inTx(stranger, lockRow, first.ID)
	b.inTx(stranger, lockRow, second.ID)
	result := make(chan error, 1)
	go func() {
		_, err := small.Commit(context.WithoutCancel(t.Context()), me, newMark(), []store.Entry{{Claim: first, Commit: ending(step.Done)}}, patient)
		result <- err
	}()
	b.waiting(1)
	got, err := small.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: second, Commit: ending(step.Done)}}, time.Hour)
	require.NoError(t, err)
	require.Empty(t, got.Applied)
	got, err = small.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: free, Commit: ending(step.Done)}}, 0)
	require.NoError(t, err)
	require.True(t, got.Applied[free.ID])
	require.NoError(t, stranger.Rollback(t.Context()))
	require.NoError(t, <-result)
	require.Equal(t, "done", b.status(first.ID))
}
