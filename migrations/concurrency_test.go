package migrations_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/migrations"
)

const build = "CREATE INDEX CONCURRENTLY%"

func TestManyMigratorsAtOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	var (
		group sync.WaitGroup
		mutex sync.Mutex
		all   []string // guarded by mutex
		errs  []error  // guarded by mutex
	)
	for range 8 {
		group.Go(func() {
			applied, err := d.migrator().Up(t.Context())
			mutex.Lock()
			defer mutex.Unlock()
			all, errs = append(all, applied...), append(errs, err)
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, migrations.Versions(), all, "each version once, all by the one that came first")
	d.requireCurrent(t)
}

func TestManyMigratorsDuringAConcurrentBuild(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, beforeIndexes)
	release := d.hold(t)
	var waits []func() error
	for range 4 {
		waits = append(waits, background(t, func() error {
			_, err := d.migrator().Up(t.Context())
			return err
		}))
	}
	d.awaitWaiting(t, build)
	require.Equal(t, 1, d.waiting(t, "%"), "the others do not wait in a statement")
	release()
	for _, wait := range waits {
		require.NoError(t, wait())
	}
	d.requireCurrent(t)
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	holder, err := d.Acquire(t.Context())
	require.NoError(t, err)
	defer holder.Release()
	_, err = holder.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, atlasLock)
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	wait := background(t, func() error {
		_, err := d.migrator().Up(ctx)
		return err
	})
	require.Eventually(t, func() bool {
		return one[int](t, d, `SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'SELECT pg_try_advisory_lock%'`) > 0
	}, patience, tick)
	cancel(context.DeadlineExceeded)
	require.ErrorContains(t, wait(), "migration")
	require.Empty(t, column[string](t, d, `SELECT nspname::text FROM pg_namespace WHERE nspname = 'gendurable'`), "nothing was done")
	_, err = holder.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, atlasLock)
	require.NoError(t, err)
	d.at(t, migrations.Latest()).requireCurrent(t)
}

func TestCancelledBuildIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, beforeIndexes)
	d.cutOffBuild(t)
	d.at(t, migrations.Latest()).requireCurrent(t)
}

func TestBuildCutOffManyTimes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, beforeIndexes)
	for range 3 {
		d.cutOffBuild(t)
	}
	d.at(t, migrations.Latest()).requireCurrent(t)
}

// cutOffBuild cancels a migrator in its first concurrent build, and waits until its session has
// ended at the server.
func (d database) cutOffBuild(t *testing.T) {
	t.Helper()
	release := d.holdSnapshot(t)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	wait := background(t, func() error {
		_, err := d.migrator().Up(ctx)
		return err
	})
	d.awaitWaiting(t, build)
	cancel()
	require.Error(t, wait())
	require.Eventually(t, func() bool { return d.waiting(t, build) == 0 }, patience, tick, "the server builds on")
	require.Equal(t, []string{firstIndexName}, column[string](t, d, `SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid`))
	status, err := d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, beforeIndexes, status.Current)
	require.Equal(t, migrations.StateOlder, status.State)
}

// A file in a transaction that does not get its lock in time gives up, lets the traffic through,
// and tries again.
func TestLocksNotHadInTimeAreAskedForAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	release := d.hold(t)
	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	const alter = "ALTER TABLE%"
	d.awaitWaiting(t, alter)
	require.Eventually(t, func() bool { return d.waiting(t, alter) == 0 }, patience, tick)
	release()
	require.NoError(t, wait())
	d.requireCurrent(t)
}
