package migrate_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

// A program migrates before its engine starts. The second time there is nothing to do.
func ExampleMigrator_Up() {
	pool, closing := database()
	defer closing()
	ctx := context.Background()
	migrator := migrate.Migrator{Pool: pool, Schema: "orders"}

	applied, err := migrator.Up(ctx)
	fmt.Println(len(applied) > 0, err)
	again, err := migrator.Up(ctx)
	fmt.Println(len(again), err)
	// Output:
	// true <nil>
	// 0 <nil>
}

// A deploy may look before it migrates.
func ExampleMigrator_Status() {
	pool, closing := database()
	defer closing()
	ctx := context.Background()
	for _, schema := range []string{migrations.DefaultSchema, "orders"} {
		status, err := migrate.Migrator{Pool: pool, Schema: schema}.Status(ctx)
		fmt.Println(schema, status.State, len(status.Pending) > 0, err)
	}
	// Output:
	// gendurable current false <nil>
	// orders missing true <nil>
}

// Down undoes one migration, To any number of them. Here there is one, which makes the tables.
func ExampleMigrator_To() {
	pool, closing := database()
	defer closing()
	ctx := context.Background()
	migrator := migrate.Migrator{Pool: pool}

	undone, err := migrator.To(ctx, migrations.Empty)
	fmt.Println(len(undone) > 0, err)
	undone, err = migrator.Down(ctx)
	fmt.Println(len(undone), err)
	status, err := migrator.Status(ctx)
	fmt.Println(status.State, err)
	// Output:
	// true <nil>
	// 0 <nil>
	// missing <nil>
}

func database() (pool *pgxpool.Pool, closing func()) {
	ctx := context.Background()
	url, drop, err := pgtest.Example()
	if err != nil {
		panic(err)
	}
	if pool, err = pgxpool.New(ctx, url); err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		if err := drop(); err != nil {
			panic(err)
		}
	}
}
