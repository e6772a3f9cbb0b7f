// Package ddl computes the schema that the migrations must add up to, as SQL: ent's tables, and the
// parts that ent cannot express.
//
// The committed schema.sql is that SQL. atlas migrate diff reads it to write the next migration,
// and [Drift] compares it, freshly rendered, with the schema that the migrations build. It leaves
// out three things, since no schema tool of the community edition sees them: the sequence of the
// claim tokens, storage parameters, and the order of columns. They live in the migrations and their
// tests.
//
// It may import the generated package ent/migrate and package migrations.
package ddl

import (
	"context"
	"fmt"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	entschema "entgo.io/ent/dialect/sql/schema"

	entmigrate "github.com/gendurable/gendurable/ent/migrate"
)

const (
	statusType = "durable_status"

	// guard is the correlation key while it is occupied. The statuses are an array of the enum, not of
	// text: a generated column must be immutable, and the cast from an enum to text is not.
	guard = `CASE WHEN correlation_key IS NOT NULL AND status = ANY (correlation_scope) THEN correlation_key END`

	// alike is equal for instances that failed alike; the base says what it leaves out of an error.
	alike = `CASE WHEN status = 'failed' THEN hashtextextended(left(regexp_replace(left(coalesce(errors->-1->>'error', ''), 500) COLLATE "C", '` +
		`"(?:[^"\\]|\\.)*(?:"|$)|` + "`[^`]*(?:`|$)" + `|[A-Za-z]''[A-Za-z]|''[^'']*''|[A-Za-z0-9_.+-]*@[A-Za-z0-9_.-]*` +
		`|-?(?:[0-9A-Fa-f]{4,}|[A-Za-z0-9_]*(?:[0-9]|::))[A-Za-z0-9_.:-]*', '#', 'g'), 200), ` +
		`hashtextextended(coalesce(failure, ''), hashtextextended(coalesce(errors->-1->>'step', ''), ` +
		`hashtextextended(queue, hashtextextended(fsm, fsm_version::bigint))))) END`
)

// SQL returns the desired schema as a script without schema qualifiers, for an empty schema that is
// first in the search_path. It needs no database.
func SQL(ctx context.Context) (string, error) {
	return render(ctx, entmigrate.Tables)
}

func render(ctx context.Context, tables []*entschema.Table) (string, error) {
	desired, err := desiredSchema(ctx, tables)
	if err != nil {
		return "", err
	}
	changes, err := postgres.DefaultDiff.SchemaDiff(&schema.Schema{}, desired)
	if err != nil {
		return "", fmt.Errorf("diff the desired schema with an empty one: %w", err)
	}
	plan, err := postgres.DefaultPlan.PlanChanges(ctx, "schema", changes, func(o *migrate.PlanOptions) {
		o.Mode = migrate.PlanModeDump
		o.Indent = "  "
	})
	if err != nil {
		return "", fmt.Errorf("plan the desired schema: %w", err)
	}
	file, err := migrate.DefaultFormatter.FormatFile(plan)
	if err != nil {
		return "", fmt.Errorf("format the desired schema: %w", err)
	}
	return "-- Generated from package schema by make generate. DO NOT EDIT.\n" + string(file.Bytes()), nil
}

// desiredSchema returns ent's description of the tables, patched.
func desiredSchema(ctx context.Context, tables []*entschema.Table) (*schema.Schema, error) {
	atlas, err := entschema.NewMigrate(offline{})
	if err != nil {
		return nil, fmt.Errorf("open ent's migration engine: %w", err)
	}
	realm, err := atlas.StateReader(tables...).ReadState(ctx)
	if err != nil {
		return nil, fmt.Errorf("read ent's tables: %w", err)
	}
	desired := realm.Schemas[0]
	patch := patcher{schema: desired, tables: tables}
	for _, table := range desired.Tables {
		if err := patch.table(table); err != nil {
			return nil, fmt.Errorf("table %q: %w", table.Name, err)
		}
	}
	return desired, nil
}
