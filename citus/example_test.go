package citus_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/migrate"
)

// A schema is migrated and distributed by the coordinator. Its engine follows it.
func Example() {
	start := func(ctx context.Context, address string, c engine.Config) (*engine.Engine, error) {
		coordinator, err := pgxpool.New(ctx, address)
		if err != nil {
			return nil, err
		}
		if _, err := (migrate.Migrator{Pool: coordinator, Schema: c.Schema}).Up(ctx); err != nil {
			return nil, err
		}
		if err := citus.Distribute(ctx, coordinator, c.Schema); err != nil {
			return nil, err
		}
		following, err := pgxpool.ParseConfig(address)
		if err != nil {
			return nil, err
		}
		citus.Follow(following, coordinator, c.Schema)
		if c.Pool, err = pgxpool.NewWithConfig(ctx, following); err != nil {
			return nil, err
		}
		e, err := engine.New(c)
		if err != nil {
			return nil, err
		}
		return e, e.Start(ctx)
	}
	_ = start
}

// A schema moves while its engines work. Progress shows how far the copy is.
func ExampleMove() {
	drain := func(ctx context.Context, coordinator *pgxpool.Pool, schemas []string, host string) error {
		for _, schema := range schemas {
			err := citus.Move(ctx, coordinator, schema, host, 5432, citus.MoveOptions{
				Progress: func(p citus.Progress) { fmt.Println(schema, p.Status, p.Copied, "of", p.Total) },
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	_ = drain
}
