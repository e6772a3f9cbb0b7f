package hosts

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/integration/hosts/ent"
)

// placeWithin places an order in a transaction of pgx, and wakes the engine after its commit.
func placeWithin(ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, customer string, cents int64) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
	driver := entpgx.Within(tx)
	if _, err := place(ctx, ent.NewClient(ent.Driver(driver)), eng, customer, cents); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	driver.Committed() // or the next poll finds it
	return nil
}
