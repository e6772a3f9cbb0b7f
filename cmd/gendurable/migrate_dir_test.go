package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrations"
)

// A host's own Atlas project applies the engine's migrations and its own, each with its own schema
// and revision table.
func TestMigrateDir(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.CI) // it needs the Atlas CLI
	h := &host{t: t, url: pgtest.Database(t)}
	h.pool = pgtest.Pool(t, h.url)
	repository := t.TempDir()
	dir, project := filepath.Join(repository, "db", "gendurable"), filepath.Join(repository, "atlas.hcl")
	first := read[written](h.run("migrate", "dir", dir, "--project", project, "--schema", "durable", "--json").is(codeDone))
	// The file that it has written is not taken for one of the host's.
	require.NotContains(t, h.run("migrate", "dir", dir, "--project", project, "--schema", "durable").is(codeDone).out, "is yours")
	require.Len(t, first.Files, len(migrations.Versions())+1)
	require.Equal(t, project, first.Project)

	atlas, err := filepath.Abs("../../bin/atlas")
	require.NoError(t, err)
	require.FileExists(t, atlas, "make atlas builds it")
	run := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), atlas, args...)
		command.Dir = repository
		command.Env = append(os.Environ(), "DATABASE_URL="+h.url, "ATLAS_NO_UPDATE_NOTIFIER=true", "HOME="+t.TempDir())
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	text, err := os.ReadFile(project)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(project, append(text, []byte(`
env "app" {
  url = getenv("DATABASE_URL")
  migration {
    dir = "file://db/app"
  }
}
`)...), 0o600))
	app := filepath.Join(repository, "db", "app")
	require.NoError(t, os.Mkdir(app, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(app, "1_orders.sql"), []byte("CREATE TABLE public.orders (id bigint);"), 0o600))
	run("migrate", "hash", "--dir", "file://db/app")
	run("migrate", "apply", "--env", "app", "--allow-dirty")
	run("migrate", "apply", "--env", "gendurable")
	require.NoError(t, migrations.Check(t.Context(), h.pool, "durable"))
	run("migrate", "apply", "--env", "app")

	// A later run leaves the host's project alone, and says what it needs; it writes what is missing.
	require.NoError(t, os.Remove(filepath.Join(dir, "atlas.sum")))
	again := read[written](h.run("migrate", "dir", dir, "--project", project, "--json").is(codeDone))
	require.Equal(t, []string{"atlas.sum"}, again.Files)
	require.Empty(t, again.Project)
	h.run("migrate", "dir", dir, "--project", project).is(codeDone).says(`env "gendurable"`, `"file://db/gendurable"`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, first.Files[0]), []byte("SELECT 1;"), 0o600))
	h.run("migrate", "dir", dir, "--project", project).is(codeUsage).complains("a migration never changes")
}
