// Package ddl computes the schema that the migrations must add up to, as SQL: ent's tables, and the
// parts that ent cannot express.
//
// The committed schema.sql is that SQL. atlas migrate diff reads it to write the next migration,
// and [Drift] compares it, freshly rendered, with the schema that the migrations build. It leaves
// out what no schema tool of the community edition sees: most functions, the sequence of the claim
// tokens, storage parameters, and the order of columns. They live in the migrations and their
// tests.
//
// It may import the generated package ent/migrate and package migrations.
package ddl

import (
	"context"
	_ "embed" // of the functions
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

	// alike is equal for instances that failed alike.
	alike = `CASE WHEN status = 'failed' THEN gen_durable_fingerprint(errors, failure, queue, fsm, fsm_version) END`
)

// functions are those that the tables refer to, as the base has them: Atlas' community edition does
// not compare functions.
//
//go:embed functions.sql
var functions string

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
	return "-- Generated from package schema by make generate. DO NOT EDIT.\n" + functions + string(file.Bytes()), nil
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
