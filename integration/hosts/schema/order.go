// Package schema is the schema of a host: an order, and the instance that carries it out.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/fsm"
)

// Order is an order of a customer.
type Order struct{ ent.Schema }

// Fields returns the fields of an order. Its instance is a plain column: the engine deletes
// instances when their retention has passed, and a foreign key would either prevent that or delete
// the order, too.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("customer"),
		field.Int64("cents"),
		field.Int64("instance_id").GoType(fsm.ID(0)).Optional().Nillable(),
	}
}
