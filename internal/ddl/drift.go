package ddl

import (
	"context"
	"fmt"

	atlas "ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	entschema "entgo.io/ent/dialect/sql/schema"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	entmigrate "github.com/gendurable/gendurable/ent/migrate"
	"github.com/gendurable/gendurable/migrate"
)

// scratch is the Postgres schema in which both sides are built, one after the other. They need the
// same name, since Postgres writes it into its form of expressions.
const scratch = "gendurable_drift"

// Drift builds the desired schema and the migrations' in an empty database, reads Postgres'
// descriptions of both, and returns the statements that would turn the latter into the former.
// Without drift there are none. The database keeps the schema gendurable_drift.
func Drift(ctx context.Context, url string) ([]string, error) {
	return drift(ctx, url, entmigrate.Tables)
}

func drift(ctx context.Context, url string, tables []*entschema.Table) ([]string, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse the scratch database's URL: %w", err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = scratch
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the scratch database: %w", err)
	}
	defer pool.Close()

	desired, err := inspectDesired(ctx, pool, tables)
	if err != nil {
		return nil, fmt.Errorf("build the desired schema: %w", err)
	}
	if _, err := pool.Exec(ctx, "DROP SCHEMA "+scratch+" CASCADE"); err != nil {
		return nil, fmt.Errorf("drop the desired schema: %w", err)
	}
	migrator := migrate.Migrator{Pool: pool, Schema: scratch}
	if _, err := migrator.Up(ctx); err != nil {
		return nil, err
	}
	migrated, err := inspect(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("inspect the migrated schema: %w", err)
	}
	return difference(ctx, migrated, desired)
}

func inspectDesired(ctx context.Context, pool *pgxpool.Pool, tables []*entschema.Table) (*schema.Schema, error) {
	script, err := render(ctx, tables)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{"CREATE SCHEMA " + scratch, script} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	return inspect(ctx, pool)
}

func inspect(ctx context.Context, pool *pgxpool.Pool) (*schema.Schema, error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }() // the pool keeps its connections
	driver, err := postgres.Open(db)
	if err != nil {
		return nil, fmt.Errorf("open atlas: %w", err)
	}
	return driver.InspectSchema(ctx, scratch, &schema.InspectOptions{Exclude: []string{"atlas_schema_revisions"}})
}

func difference(ctx context.Context, from, to *schema.Schema) ([]string, error) {
	changes, err := postgres.DefaultDiff.SchemaDiff(from, to, schema.DiffNormalized())
	if err != nil {
		return nil, fmt.Errorf("compare the schemas: %w", err)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	var unqualified string
	plan, err := postgres.DefaultPlan.PlanChanges(ctx, "drift", changes, func(o *atlas.PlanOptions) { o.SchemaQualifier = &unqualified })
	if err != nil {
		return nil, fmt.Errorf("describe the difference: %w", err)
	}
	statements := make([]string, len(plan.Changes))
	for i, change := range plan.Changes {
		statements[i] = change.Cmd
	}
	return statements, nil
}
