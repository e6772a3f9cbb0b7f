// Package ddl computes the schema that the migrations must add up to, as SQL: ent's tables, and the
// parts that ent cannot declare, for which package schema has annotations. It names no table or
// column itself.
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
	"fmt"
	"strings"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	entschema "entgo.io/ent/dialect/sql/schema"

	entmigrate "github.com/gendurable/gendurable/ent/migrate"
	gschema "github.com/gendurable/gendurable/schema"
)

// SQL returns the desired schema as a script without schema qualifiers, for an empty schema that is
// first in the search_path. It needs no database.
func SQL(ctx context.Context) (string, error) {
	added, err := additionsOf(gschema.All())
	if err != nil {
		return "", err
	}
	return render(ctx, entmigrate.Tables, added)
}

func render(ctx context.Context, tables []*entschema.Table, added map[string]additions) (string, error) {
	desired, err := desiredSchema(ctx, tables, added)
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
	var script strings.Builder
	script.WriteString("-- Generated from package schema by make generate. DO NOT EDIT.\n")
	for _, table := range tables {
		script.WriteString(added[table.Name].table.Before)
	}
	script.Write(file.Bytes())
	return script.String(), nil
}

// desiredSchema returns ent's description of the tables, with the additions.
func desiredSchema(ctx context.Context, tables []*entschema.Table, added map[string]additions) (*schema.Schema, error) {
	atlas, err := entschema.NewMigrate(offline{})
	if err != nil {
		return nil, fmt.Errorf("open ent's migration engine: %w", err)
	}
	realm, err := atlas.StateReader(tables...).ReadState(ctx)
	if err != nil {
		return nil, fmt.Errorf("read ent's tables: %w", err)
	}
	desired := realm.Schemas[0]
	patch := patcher{schema: desired, enums: map[string]*schema.EnumType{}}
	for _, table := range tables {
		patch.enum(table, added[table.Name])
	}
	for _, table := range desired.Tables {
		additions, ok := added[table.Name]
		if !ok {
			return nil, fmt.Errorf("schema.All has no schema of table %q", table.Name)
		}
		if err := patch.table(table, additions); err != nil {
			return nil, fmt.Errorf("table %q: %w", table.Name, err)
		}
	}
	return desired, nil
}
