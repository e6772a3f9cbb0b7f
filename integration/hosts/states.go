package hosts

import (
	"context"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
)

// large returns a customer's orders with carts of 100 euros and more, the largest first.
func large(ctx context.Context, client *ent.Client, eng *engine.Engine, customer string) ([]*ent.Order, error) {
	state := order.InstanceState(eng)
	return client.Order.Query().
		Where(order.Customer(customer), state.Cents.GTE(100_00)).
		Order(state.Cents.By(sql.OrderDesc())).
		All(ctx)
}
