// Package schema is the schema of a host: orders, and what else machines drive.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"

	"github.com/gendurable/gendurable/entity"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

// Order is an order of a customer. Its delete cancels the checkout.
type Order struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Order) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenBy(machine.Checkout).OnDelete(entity.Cancel)}
}

// Fields returns the fields of an order.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("customer"),
		field.Int64("cents"),
	}
}

// Indexes returns the index by which a customer's orders are found.
func (Order) Indexes() []ent.Index { return []ent.Index{index.Fields("customer")} }
