package shop

import (
	"context"
	"slices"

	"github.com/99designs/gqlgen/graphql"

	durable "github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/integration/extensions/shop/ent"
	"github.com/gendurable/gendurable/integration/extensions/shop/ent/order"
)

// Orders returns a customer's orders. If the client asks for their instances, one more query reads
// all of them.
func (s queries) Orders(ctx context.Context, customer string) ([]*ent.Order, error) {
	query := s.Client.Order.Query().Where(order.Customer(customer)).Order(order.ByID()).Limit(100)
	if slices.Contains(graphql.CollectAllFields(ctx), "instance") {
		query.WithInstance(s.Engine)
	}
	return query.All(ctx)
}

// Instance returns the instance of an order, which a list has read already.
func (s orders) Instance(ctx context.Context, o *ent.Order) (*durable.Instance, error) {
	found, err := o.InstanceOrErr()
	if ent.IsNotLoaded(err) {
		found, err = o.QueryInstance(s.Engine).Only(ctx)
	}
	if ent.IsNotFound(err) || durable.IsNotFound(err) {
		return nil, nil // none yet, or gone after its retention
	}
	return found, err
}

// Pay changes an order and signals its checkout: both, or neither.
func (s mutations) Pay(ctx context.Context, id, cents int) (*ent.Order, error) {
	tx, err := s.Client.Tx(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	o, err := tx.Order.UpdateOneID(id).AddCents(-cents).Save(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Durable(s.Engine).Signal(ctx, orderKey(id), paid.With(cents)); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	return o.Unwrap(), nil
}
