// Package schema is the schema of a host that serves GraphQL.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
)

// Order is an order of a customer.
type Order struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Order) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("checkout")} }

// Fields returns the fields of an order.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("customer"), field.Int("cents")}
}
