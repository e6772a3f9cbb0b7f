// Package schema is the bakery's own: its orders.
package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
)

// Order is a cake that a customer has ordered. Its deletion cancels its instance.
type Order struct{ ent.Schema }

// Mixin returns the link to the instance that drives the order.
func (Order) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenByName("bakery.order").Required().OnDelete(entity.Cancel)}
}

// Fields returns what the bakery itself stores of an order.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.String("customer").NotEmpty(),
		field.String("cake").NotEmpty(),
		field.Int64("cents").Positive(),
		field.Time("delivered").Optional().Nillable(),
		field.Time("placed").Default(time.Now).Immutable(),
	}
}
