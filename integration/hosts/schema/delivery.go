package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
)

// Delivery has a status column, which programs wrote here and there before package deliveries did.
type Delivery struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Delivery) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("delivery")} }

// Fields returns the fields of a delivery.
func (Delivery) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("address"),
		field.Enum("status").Values("pending", "packed", "out-for-delivery", "delivered", "cancelled", "archived").Default("pending"),
	}
}
