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
	gschema "github.com/gendurable/gendurable/schema"
)

// scratch is the Postgres schema in which both sides are built, one after the other. They need the
// same name, since Postgres writes it into its form of expressions.
const scratch = "gendurable_drift"

// Drift builds the desired schema and the migrations' in an empty database, reads Postgres'
// descriptions of both, and returns the statements that would turn the latter into the former.
// Without drift there are none. The database keeps the schema gendurable_drift.
func Drift(ctx context.Context, url string) ([]string, error) {
	added, err := additionsOf(gschema.All())
	if err != nil {
		return nil, err
	}
	return drift(ctx, url, entmigrate.Tables, added)
}

func drift(ctx context.Context, url string, tables []*entschema.Table, added map[string]additions) ([]string, error) {
	script, err := render(ctx, tables, added)
	if err != nil {
		return nil, err
	}
	pool, err := scratchPool(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()

	desired, err := inspectScript(ctx, pool, script)
	if err != nil {
		return nil, fmt.Errorf("build the desired schema: %w", err)
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

// scratchPool opens a pool whose search_path is the scratch schema.
func scratchPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse the scratch database's URL: %w", err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = scratch
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the scratch database: %w", err)
	}
	return pool, nil
}

// inspectScript runs the script in the scratch schema, which it makes and drops again.
func inspectScript(ctx context.Context, pool *pgxpool.Pool, script string) (*schema.Schema, error) {
	for _, statement := range []string{"CREATE SCHEMA " + scratch, script} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	built, err := inspect(ctx, pool)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "DROP SCHEMA "+scratch+" CASCADE"); err != nil {
		return nil, fmt.Errorf("drop the scratch schema: %w", err)
	}
	return built, nil
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
	statements := constraints(from, to)
	if len(changes) == 0 {
		return statements, nil
	}
	var unqualified string
	plan, err := postgres.DefaultPlan.PlanChanges(ctx, "drift", changes, func(o *atlas.PlanOptions) { o.SchemaQualifier = &unqualified })
	if err != nil {
		return nil, fmt.Errorf("describe the difference: %w", err)
	}
	for _, change := range plan.Changes {
		statements = append(statements, change.Cmd)
	}
	return statements, nil
}

// constraints compares which unique indexes are constraints, since Atlas does not.
func constraints(from, to *schema.Schema) (statements []string) {
	for _, table := range to.Tables {
		old, ok := from.Table(table.Name)
		if !ok {
			continue
		}
		for _, index := range table.Indexes {
			before, ok := old.Index(index.Name)
			if !ok {
				continue
			}
			_, was := attribute[*postgres.Constraint](before.Attrs)
			_, is := attribute[*postgres.Constraint](index.Attrs)
			switch {
			case is && !was:
				statements = append(statements, fmt.Sprintf(`ALTER TABLE %q ADD CONSTRAINT %[2]q UNIQUE USING INDEX %[2]q`, table.Name, index.Name))
			case was && !is:
				statements = append(statements, fmt.Sprintf(`ALTER TABLE %q DROP CONSTRAINT %q -- but keep it as an index`, table.Name, index.Name))
			}
		}
	}
	return statements
}
