// Package schema is a host's: an order, and the instance that carries it out.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/fsm"
)

// Order of a customer.
type Order struct{ ent.Schema }

// Fields of an order. Its instance is a plain column: the engine deletes instances when their time
// has come, and a foreign key would either hold that up or take the order along.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("customer"),
		field.Int64("cents"),
		field.Int64("instance_id").GoType(fsm.ID(0)).Optional().Nillable(),
	}
}
