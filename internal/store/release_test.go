package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Where graphs need a later release than a live worker is of, no graph is made. A worker that is
// gone is in no other's way.
func TestAnOlderWorkerRefusesWhatItCannotServe(t *testing.T) {
	b := newBench(t)
	b.NeedForGraphs(store.ThisRelease + 1)
	b.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, release, expires_at) VALUES
		(gen_random_uuid(), 'old', 42, '', '{}', '{}', $1, now() + interval '1 minute'),
		(gen_random_uuid(), 'new', 43, '', '{}', '{}', $1 + 1, now() + interval '1 minute')`, store.ThisRelease)
	c := b.executing(nil)
	refused := func() {
		t.Helper()
		_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{graphOf(c, "a")}, 0)
		var older *step.ReleaseError
		require.ErrorAs(t, err, &older)
		require.Equal(t, step.ReleaseError{Host: "old", PID: 42, Release: store.ThisRelease, Needed: store.ThisRelease + 1}, *older)
		require.Equal(t, store.FaultData, store.Classify(err))
	}
	refused()
	b.commit(newMark(), false, spawnOf(b.executing(nil), kids(1)))
	// One that was stopped reports itself no more, and comes back: its session has its lock.
	b.exec(`UPDATE gendurable.workers SET expires_at = now() - interval '1 s' WHERE host = 'old'`)
	stopped := b.begin()
	b.inTx(stopped, `SELECT pg_advisory_xact_lock_shared(hashtextextended('gendurable gendurable ' || id, 0)) FROM gendurable.workers
		WHERE host = 'old'`)
	refused()
	require.NoError(t, stopped.Rollback(t.Context()))
	b.commit(newMark(), false, graphOf(c, "a"))
	b.exec(`DELETE FROM gendurable.workers`)
}

// A verb that the first release serves does not ask for workers.
func TestWhatEveryReleaseServesIsNotRefused(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, release, expires_at) VALUES
		(gen_random_uuid(), 'old', 42, '', '{}', '{}', 0, now() + interval '1 minute')`)
	b.commit(newMark(), false, graphOf(b.executing(nil), "a"))
	b.exec(`DELETE FROM gendurable.workers`)
}

// A worker registers with the number of its release, and a newer one in its place with its own.
func TestWorkersRegisterTheirRelease(t *testing.T) {
	b := newBench(t)
	line := b.Line()
	require.NoError(t, line.Present(t.Context(), &store.Presence{Worker: me, Host: "here", PID: 1, Machines: []string{}}))
	require.Equal(t, int(store.ThisRelease), b.number(`SELECT release FROM gendurable.workers WHERE id = $1::uuid`, me))
	require.NoError(t, line.Absent(t.Context(), me))
}
