package ddl

import (
	"io/fs"
	"os"
	"slices"
	"testing"

	entschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"

	entmigrate "github.com/gendurable/gendurable/ent/migrate"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrations"
)

func TestCommittedSchemaIsFresh(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	rendered, err := SQL(t.Context())
	require.NoError(t, err)
	require.Equal(t, rendered, string(committed), "run make generate")
}

// Drift does not compare functions.
func TestFunctionsAreThoseOfTheBase(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(migrations.FS(), "*_base.sql")
	require.NoError(t, err)
	require.Len(t, files, 1)
	base, err := fs.ReadFile(migrations.FS(), files[0])
	require.NoError(t, err)
	require.Contains(t, string(base), functions)
}

func TestMigrationsBuildTheDesiredSchema(t *testing.T) {
	t.Parallel()
	statements, err := Drift(t.Context(), pgtest.Database(t))
	require.NoError(t, err)
	require.Empty(t, statements)
}

// Each is a change to package schema without a migration.
func TestDriftIsSeen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(instances, signals *entschema.Table)
		want   string
	}{
		"column added": {func(instances, _ *entschema.Table) {
			instances.Columns = append(instances.Columns, &entschema.Column{Name: "extra", Type: field.TypeString, Nullable: true})
		}, `ADD COLUMN "extra"`},
		"column of signals dropped": {func(_, signals *entschema.Table) {
			signals.Indexes = slices.DeleteFunc(signals.Indexes, func(i *entschema.Index) bool { return i.Name == "signals_consumed" })
			signals.Columns = slices.DeleteFunc(signals.Columns, func(c *entschema.Column) bool { return c.Name == "consumed_at" })
			signals.Annotation.Checks = map[string]string{"signals_names_check": signals.Annotation.Checks["signals_names_check"]}
		}, `DROP COLUMN "consumed_at"`},
		"check changed": {func(instances, _ *entschema.Table) {
			instances.Annotation.Checks = map[string]string{"gen_durable_lane_check": "pick_lane BETWEEN 0 AND 3"}
		}, "gen_durable_lane_check"},
		"index added": {func(instances, _ *entschema.Table) {
			instances.Indexes = append(instances.Indexes,
				&entschema.Index{Name: "gen_durable_extra", Columns: instances.Columns[1:2]})
		}, `"gen_durable_extra"`},
		"predicate changed": {func(instances, _ *entschema.Table) {
			for i, index := range instances.Indexes {
				if index.Name == "gen_durable_finished" {
					changed, annotation := *index, *index.Annotation
					annotation.Where = "finished_at IS NULL"
					changed.Annotation = &annotation
					instances.Indexes[i] = &changed
				}
			}
		}, `"gen_durable_finished"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			instances, signals := twin(entmigrate.GenDurableTable), twin(entmigrate.SignalsTable)
			test.change(instances, signals)
			statements, err := drift(t.Context(), pgtest.Database(t), []*entschema.Table{instances, signals})
			require.NoError(t, err)
			require.NotEmpty(t, statements)
			require.Contains(t, statements[0]+statements[len(statements)-1], test.want)
		})
	}
}

// twin returns a copy that a test may change.
func twin(table *entschema.Table) *entschema.Table {
	annotation := *table.Annotation
	return &entschema.Table{
		Name: table.Name, Columns: slices.Clone(table.Columns), Indexes: slices.Clone(table.Indexes),
		PrimaryKey: table.PrimaryKey, ForeignKeys: table.ForeignKeys, Annotation: &annotation,
	}
}
