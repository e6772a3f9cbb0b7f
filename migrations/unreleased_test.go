package migrations_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrations"
)

// unreleased is what a version from before the first release has left in a schema: revisions that
// are older than the base, and its tables.
const unreleased = `CREATE SCHEMA gendurable;
	CREATE TABLE atlas_schema_revisions (version varchar PRIMARY KEY, description varchar NOT NULL, type bigint NOT NULL DEFAULT 2,
		applied bigint NOT NULL DEFAULT 0, total bigint NOT NULL DEFAULT 0, executed_at timestamptz NOT NULL, execution_time bigint NOT NULL,
		error text, error_stmt text, hash varchar NOT NULL, partial_hashes jsonb, operator_version varchar NOT NULL);
	INSERT INTO atlas_schema_revisions (version, description, applied, total, executed_at, execution_time, hash, operator_version) VALUES
		('20261121100000', 'base', 1, 1, now(), 0, '', 'test'), ('20261123050800', 'parents', 1, 1, now(), 0, '', 'test');
	CREATE TABLE gen_durable (id bigint PRIMARY KEY);
	INSERT INTO gen_durable VALUES (1)`

func TestASchemaFromBeforeTheFirstReleaseIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(t, unreleased)
	before := d.catalog(t)
	want := &migrations.SchemaError{
		Schema: "gendurable", State: migrations.StateUnreleased, Current: "20261123050800", Latest: migrations.Latest(),
	}
	for name, do := range map[string]func(context.Context) error{
		"check": func(ctx context.Context) error { return migrations.Check(ctx, d, "") },
		"up": func(ctx context.Context) error {
			_, err := d.migrator().Up(ctx)
			return err
		},
		"down": func(ctx context.Context) error {
			_, err := d.migrator().Down(ctx)
			return err
		},
		"to nothing": func(ctx context.Context) error {
			_, err := d.migrator().To(ctx, migrations.Empty)
			return err
		},
	} {
		err := do(t.Context())
		found, ok := errors.AsType[*migrations.SchemaError](err)
		require.True(t, ok, "%s: %v", name, err)
		require.Equal(t, want, found, name)
		require.EqualError(t, err, `schema "gendurable" has version 20261123050800, of a program from before the first release, `+
			`and no migration leads on from there; drain it: insert nothing any more, and let the program that made it end what is there; `+
			`then give this program a new schema (Config.Schema), run gendurable migrate up --schema with its name, and drop the old one`)
	}
	status, err := d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.Status{Schema: "gendurable", State: migrations.StateUnreleased, Current: "20261123050800", Latest: migrations.Latest()}, status)

	// The CLI goes by the newest revision, and would make the tables.
	out, err := d.atlas(t, "migrate", "apply")
	require.Error(t, err, out)
	require.Contains(t, out, "has tables of a version from before the first release")
	require.Equal(t, before, d.catalog(t), "nothing was done")
	require.Equal(t, 1, one[int](t, d, `SELECT count(*)::int FROM gen_durable`))

	// The way out leads through another schema of the same database.
	elsewhere := d.migrator()
	elsewhere.Schema = "durable"
	_, err = elsewhere.Up(t.Context())
	require.NoError(t, err)
	require.NoError(t, migrations.Check(t.Context(), d, "durable"))
}

// A schema of the first release, also one applied in part, is not taken for one from before.
func TestASchemaOfTheFirstReleaseIsNotRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	status, err := d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.StateOlder, status.State)
	d.exec(t, `UPDATE atlas_schema_revisions SET applied = 0`)
	status, err = d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.StateOlder, status.State)
	require.Equal(t, migrations.Empty, status.Current)

	empty := pgtest.Pool(t, pgtest.Database(t))
	status, err = migrations.ReadStatus(t.Context(), empty, "")
	require.NoError(t, err)
	require.Equal(t, migrations.StateMissing, status.State)
}
