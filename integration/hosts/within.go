package hosts

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

// placeWithin places an order in a transaction of pgx. Its commit wakes the engine.
func placeWithin(ctx context.Context, client *ent.Client, pool *pgxpool.Pool, eng *engine.Engine, customer string, cents int64) error {
	native, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer native.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
	tx, err := client.Within(ctx, native)
	if err != nil {
		return err
	}
	if _, err := place(ctx, tx.Client(), eng, customer, cents); err != nil {
		return err
	}
	return tx.Commit()
}

// settle is a step that changes its order and ends the checkout: both, or neither.
func settle(client *ent.Client) func(context.Context, *fsm.Visit[machine.Cart, int64]) (fsm.Outcome, error) {
	return func(_ context.Context, v *fsm.Visit[machine.Cart, int64]) (fsm.Outcome, error) {
		return client.InTx(func(ctx context.Context, tx *ent.Tx) (fsm.Outcome, error) {
			if err := tx.Order.UpdateOneID(v.State.Order).SetCents(0).Exec(ctx); err != nil {
				return nil, err
			}
			return v.Done(v.State.Cents), nil
		}), nil
	}
}
