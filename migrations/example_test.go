package migrations_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

// A program migrates before it starts its engine. Any number of processes may do so at the same
// time.
func ExampleMigrator_Up() {
	ctx := context.Background()
	url, drop, err := pgtest.Example()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drop() //nolint:errcheck // an example's database
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	err = migrations.Check(ctx, pool, "orders")
	if schema, ok := errors.AsType[*migrations.SchemaError](err); ok {
		fmt.Println(schema.State)
	}
	migrator := migrate.Migrator{Pool: pool, Schema: "orders"}
	applied, err := migrator.Up(ctx)
	fmt.Println(len(applied) == len(migrations.Versions()), err)
	applied, err = migrator.Up(ctx)
	fmt.Println(len(applied), err)
	fmt.Println(migrations.Check(ctx, pool, "orders"))
	// Output:
	// missing
	// true <nil>
	// 0 <nil>
	// <nil>
}
