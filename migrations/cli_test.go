package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrations"
)

// atlasLock is the key of the lock that the CLI takes around migrate apply.
const atlasLock = 2686470616

func TestCLIOnAnEmptyDatabaseThenMigrator(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t)
	d.atlasApply(t)
	d.requireCurrent(t)
	applied, err := d.migrator().Up(t.Context())
	require.NoError(t, err)
	require.Empty(t, applied)
	undone, err := d.migrator().Down(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{migrations.Latest()}, undone)
	d.atlasApply(t)
	d.requireCurrent(t)
}

func TestMigratorThenCLI(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t).at(t, migrations.Latest())
	out, err := d.atlas(t, "migrate", "apply")
	require.NoError(t, err, out)
	require.Contains(t, out, "No migration files to execute")
	out, err = d.atlas(t, "migrate", "status")
	require.NoError(t, err, out)
	require.Contains(t, out, "Migration Status: OK")
	require.Contains(t, out, migrations.Latest())
	d.requireCurrent(t)
}

func TestMigratorAndCLIInTurns(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t)
	for i, version := range migrations.Versions() {
		if i%2 == 0 {
			d.atlasApply(t, "1")
		} else {
			d.at(t, version)
		}
		status, err := d.migrator().Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, version, status.Current)
	}
	d.requireCurrent(t)
}

func TestCLIUsesTheSchemaItIsGiven(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t)
	d.atlasApply(t, "--var", "schema=other")
	require.NoError(t, migrations.Check(t.Context(), d, "other"))
	require.Equal(t, []string{"other"}, column[string](t, d,
		`SELECT DISTINCT schemaname::text FROM pg_tables WHERE tablename IN ('gen_durable', 'signals', 'atlas_schema_revisions')`))
}

func TestDirectoryIsValidAndInSync(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d, dev := newDatabase(t), pgtest.Database(t)
	out, err := d.cli(t, dev, "migrate", "validate").CombinedOutput()
	require.NoError(t, err, string(out))
	// It runs twice, since leftovers of the first replay in the dev database would disturb the second.
	for range 2 {
		out, err = d.cli(t, dev, "migrate", "diff", "drift").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "synced with the desired state")
	}
}

// The CLI, configured by atlas.hcl, does not wait for the lock, but reports it.
func TestCLIAndMigratorAtOnce(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t)
	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	d.applyUntilDone(t)
	require.NoError(t, wait())
	d.requireCurrent(t)
}

func (d database) applyUntilDone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, err := d.atlas(t, "migrate", "apply")
		if err != nil {
			require.Contains(t, out, "acquiring database lock", out)
		}
		return err == nil
	}, patience, tick)
}

func TestCLIDuringAMigratorsConcurrentBuild(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t).at(t, beforeIndexes)
	release := d.hold(t)
	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	d.awaitWaiting(t, build)
	out, err := d.atlas(t, "migrate", "apply")
	require.Error(t, err)
	require.Contains(t, out, "acquiring database lock")
	release()
	d.applyUntilDone(t)
	require.NoError(t, wait())
	d.requireCurrent(t)
}

// A CLI with a lock timeout waits inside a statement. The migrator's build waits for that statement
// in turn, is the deadlock's victim, and repeats until the CLI's timeout has passed.
func TestWaitingCLIDuringAMigratorsConcurrentBuild(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t).at(t, beforeIndexes)
	release := d.hold(t)
	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	d.awaitWaiting(t, build)
	waitCLI := background(t, func() error {
		_, err := d.atlas(t, "migrate", "apply", "--lock-timeout", "4s")
		return err
	})
	// A session looks for deadlocks once, a second into its wait: after that, the CLI cannot be the
	// victim any more.
	require.Eventually(t, func() bool {
		return one[int](t, d, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND query LIKE 'SELECT pg_advisory_lock%' AND query_start < clock_timestamp() - interval '1.5 s'`) > 0
	}, patience, tick)
	release()
	require.NoError(t, wait())
	_ = waitCLI() // it must only end, with the lock or without
	d.applyUntilDone(t)
	d.requireCurrent(t)
}

func TestMigratorDuringACLIsConcurrentBuild(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t).at(t, beforeIndexes)
	release := d.hold(t)
	waitCLI := background(t, func() error {
		_, err := d.atlas(t, "migrate", "apply")
		return err
	})
	d.awaitWaiting(t, build)
	wait := background(t, func() error {
		_, err := d.migrator().Up(t.Context())
		return err
	})
	require.Eventually(t, func() bool {
		return one[int](t, d, `SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'idle' AND query LIKE 'SELECT pg_try_advisory_lock%'`) > 0
	}, patience, tick, "the migrator polls")
	release()
	require.NoError(t, waitCLI())
	require.NoError(t, wait())
	d.requireCurrent(t)
}

// One tool is cut off in a build, and the other one resumes it.
func TestCutOffBuildAcrossTools(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	up := func(t *testing.T, d database) { d.at(t, migrations.Latest()) }
	apply := func(t *testing.T, d database) { d.atlasApply(t) }
	for name, test := range map[string]struct {
		cutOff, finish func(t *testing.T, d database)
	}{
		"migrator then CLI":         {func(t *testing.T, d database) { d.cutOffBuild(t) }, apply},
		"CLI then migrator":         {func(t *testing.T, d database) { d.cutOffCLI(t) }, up},
		"CLI then CLI":              {func(t *testing.T, d database) { d.cutOffCLI(t) }, apply},
		"CLI, twice, then migrator": {cutOffCLITwice, up},
		"CLI, twice, then CLI": {cutOffCLITwice, func(t *testing.T, d database) {
			out, err := d.atlas(t, "migrate", "apply")
			require.Error(t, err)
			require.Contains(t, out, "REINDEX INDEX CONCURRENTLY "+firstIndexName)
			d.exec(t, "REINDEX INDEX CONCURRENTLY "+firstIndexName)
			d.atlasApply(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t).at(t, beforeIndexes)
			test.cutOff(t, d)
			test.finish(t, d)
			d.requireCurrent(t)
		})
	}
}

// The second time, the repeated build is cut off.
func cutOffCLITwice(t *testing.T, d database) {
	d.cutOffCLI(t)
	d.cutOffCLI(t)
}

// cutOffCLI cancels the CLI's concurrent build at the server, in its last phase.
func (d database) cutOffCLI(t *testing.T) {
	t.Helper()
	release := d.holdSnapshot(t)
	defer release()
	wait := background(t, func() error {
		_, err := d.atlas(t, "migrate", "apply")
		return err
	})
	d.awaitWaiting(t, build)
	d.exec(t, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1`, build)
	require.Error(t, wait())
	require.Equal(t, []string{firstIndexName}, column[string](t, d, `SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid`))
}

// The plain form keeps the revisions in a separate schema and makes the tables in public, where no
// engine would find them.
func TestCLIThatPutsTheRevisionsElsewhere(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d := newDatabase(t)
	plain := func(url string, args ...string) (string, error) {
		command := d.cli(t, "")
		command.Args = append([]string{command.Args[0], "migrate", "apply", "--url", url, "--dir", "file://migrations"}, args...)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	out, err := plain(d.url)
	require.Error(t, err, out)
	require.Contains(t, out, "schema public has no revision table")
	require.Contains(t, out, "gendurable migrate dir")
	require.Equal(t, []string{"atlas_schema_revisions"}, column[string](t, d,
		`SELECT tablename::text FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`), "nothing was made")

	// A project of the host's own, with its revisions in the CLI's schema, disturbs nothing.
	d.atlasApply(t)
	d.requireCurrent(t)
}

func TestCLIKeepsTheRevisionsOfASchema(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	d, dev := newDatabase(t).at(t, migrations.Latest()), pgtest.Database(t)
	out, err := d.cli(t, dev, "schema", "apply", "--dry-run").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "atlas_schema_revisions")
}
