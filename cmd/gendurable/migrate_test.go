package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	h := &host{t: t, url: pgtest.Database(t)}
	versions, latest := migrations.Versions(), migrations.Latest()
	status := read[standing](h.run("migrate", "status", "--json").is(codeUnmet))
	require.Equal(t, standing{"gendurable", migrations.StateMissing, "0", latest, versions}, status)
	h.run("migrate", "status").is(codeUnmet).says("state    missing", "pending  "+versions[0], "gendurable migrate up")

	h.run("migrate", "up", "--to", versions[0]).is(codeDone).says("applied " + versions[0])
	h.run("migrate", "down", "--to", "0", "--yes").is(codeDone).says("undone " + versions[0])
	h.run("migrate", "up").is(codeDone).says("applied "+latest, "schema \"gendurable\" has version "+latest+": current")
	require.Equal(t, migrated{"gendurable", []string{}, latest}, read[migrated](h.run("migrate", "up", "--json").is(codeDone)))
	h.run("migrate", "status").is(codeDone).says("state    current")

	// First no answer is possible, then the answer is no, then yes.
	h.run("migrate", "down").is(codeUnconfirmed).complains("Undo " + latest).complains("--yes")
	h.interactive, h.stdin = true, "n\n"
	h.run("migrate", "down").is(codeUnconfirmed).complains("[y/N]")
	h.stdin = ""
	h.run("migrate", "down").is(codeUnconfirmed)
	h.run("migrate", "status").is(codeDone)
	h.stdin = "Y\n"
	h.run("migrate", "down").is(codeDone).says("undone " + latest)
	h.interactive = false
	h.run("migrate", "up").is(codeDone)
	require.Equal(t, "0", read[migrated](h.run("migrate", "down", "--to", "0", "--yes", "--json").is(codeDone)).Current)
	h.run("migrate", "down").is(codeDone).says("has version 0: missing")
}

func TestMigrateSQL(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	type document struct {
		Schema     string       `json:"schema"`
		Migrations []statements `json:"migrations"`
	}
	require.Empty(t, read[document](h.run("migrate", "sql", "--json").is(codeDone)).Migrations, "nothing is pending")
	h.run("migrate", "sql", "--all", "--schema", `o"dd`).is(codeDone).
		says(`SET search_path TO "o""dd";`, "_base.sql", "CREATE TABLE \"gen_durable\"", "CREATE TABLE \"workers\"")
	all := read[document](h.run("migrate", "sql", "--all", "--down", "--json").is(codeDone)).Migrations
	require.Len(t, all, len(migrations.Versions()))
	require.Equal(t, migrations.Latest(), all[0].Version, "newest first")

	_, err := migrate.Migrator{Pool: h.pool}.Down(t.Context())
	require.NoError(t, err)
	pending := read[document](h.run("migrate", "sql", "--json").is(codeDone)).Migrations
	require.Len(t, pending, 1)
	require.Equal(t, migrations.Latest(), pending[0].Version)
	require.Len(t, read[document](h.run("migrate", "sql", "--down", "--json").is(codeDone)).Migrations, len(migrations.Versions())-1)
}

// A schema that a version from before the first release has made is refused by every command, and
// each names the way out.
func TestASchemaFromBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`UPDATE gendurable.atlas_schema_revisions SET version = '20261123050800'`)
	const wayOut = "give this program a new schema (Config.Schema), run gendurable migrate up --schema"
	for _, args := range [][]string{
		{"instance", "list"}, {"migrate", "up"}, {"migrate", "down", "--yes"}, {"migrate", "down", "--to", "0", "--yes"},
	} {
		h.run(args...).is(codeSchema).complains("from before the first release").complains(wayOut)
	}
	h.run("migrate", "status").is(codeUnmet).says("state    unreleased", wayOut)
	found := h.run("doctor").is(codeUnmet).says("fail  schema", wayOut)
	require.NotContains(t, found.out, "ok    unserved", "no check reads its tables")
	var kept bool
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT to_regclass('gendurable.gen_durable') IS NOT NULL`).Scan(&kept))
	require.True(t, kept)
}
