package ddl

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	entschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"

	entmigrate "github.com/gendurable/gendurable/ent/migrate"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrations"
	"github.com/gendurable/gendurable/schema"
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
	added, err := additionsOf(schema.All())
	require.NoError(t, err)
	before := added[entmigrate.GenDurableTable.Name].table.Before
	require.NotEmpty(t, before)
	require.Contains(t, string(base), before)
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
			added, err := additionsOf(schema.All())
			require.NoError(t, err)
			statements, err := drift(t.Context(), pgtest.Database(t), []*entschema.Table{instances, signals}, added)
			require.NoError(t, err)
			require.NotEmpty(t, statements)
			require.Contains(t, statements[0]+statements[len(statements)-1], test.want)
		})
	}
}

// Each is an annotation less than package schema has.
func TestDriftOfAnnotationsIsSeen(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.CI) // it builds the schema once for each annotation
	added, err := additionsOf(schema.All())
	require.NoError(t, err)
	without := func(name, table string, forget func(a *additions)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			others := maps.Clone(added)
			a := additions{table: others[table].table, columns: maps.Clone(others[table].columns), indexes: maps.Clone(others[table].indexes)}
			forget(&a)
			others[table] = a
			statements, err := drift(t.Context(), pgtest.Database(t), entmigrate.Tables, others)
			// Atlas refuses some of the changes, and Postgres a column whose function is not there.
			require.True(t, err != nil || len(statements) > 0)
		})
	}
	for table, a := range added {
		for column := range a.columns {
			without(table+"."+column, table, func(a *additions) { delete(a.columns, column) })
		}
		for index := range a.indexes {
			without(index, table, func(a *additions) { delete(a.indexes, index) })
		}
		for i, index := range a.table.Indexes {
			without(index.Name, table, func(a *additions) { a.table.Indexes = slices.Delete(slices.Clone(a.table.Indexes), i, i+1) })
		}
		if a.table.Before != "" {
			without("before "+table, table, func(a *additions) { a.table.Before = "" })
		}
		if len(a.table.PrimaryKey) > 0 {
			without("key of "+table, table, func(a *additions) { a.table.PrimaryKey = nil })
		}
		if len(a.table.PartitionByRange) > 0 {
			without("partitioning of "+table, table, func(a *additions) { a.table.PartitionByRange = nil })
		}
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
