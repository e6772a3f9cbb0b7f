package hosts

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

func orderKey(id int64) fsm.Key { return fsm.Key(fmt.Sprintf("order:%d", id)) }

// place saves an order and starts its checkout: both, or neither.
func place(ctx context.Context, client *ent.Client, eng *engine.Engine, customer string, cents int64) (*ent.Order, error) {
	return client.Order.Create().SetCustomer(customer).SetCents(cents).
		SaveWith(ctx, eng, func(o *ent.Order) fsm.Spec {
			return machine.Checkout.New(machine.Cart{Order: o.ID, Cents: o.Cents}).Key(orderKey(o.ID))
		})
}

// unpaid returns a page of a customer's orders whose checkout waits for the payment, each with its
// Instance. It takes two queries, one for the orders and one for all of their instances.
func unpaid(ctx context.Context, client *ent.Client, eng *engine.Engine, customer string) ([]*ent.Order, error) {
	return client.Order.Query().
		Where(order.Customer(customer), order.HasInstanceWith(eng, instance.StatusEQ(fsm.StatusAwaitingSignal))).
		Order(order.ByID()).Limit(50).
		WithInstance(eng).
		All(ctx)
}

// payWithTip changes an order and signals its checkout, in one transaction. Its commit wakes the
// engine.
func payWithTip(ctx context.Context, client *ent.Client, eng *engine.Engine, id, tip int64) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	o, err := tx.Order.UpdateOneID(id).AddCents(tip).Save(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Durable(eng).Signal(ctx, orderKey(o.ID), machine.Paid.With(o.Cents)); err != nil {
		return err
	}
	return tx.Commit()
}

// withdraw deletes an order, and cancels its checkout: so says the schema.
func withdraw(ctx context.Context, client *ent.Client, eng *engine.Engine, id int64) error {
	return client.Order.DeleteOneID(id).ExecWith(ctx, eng)
}
