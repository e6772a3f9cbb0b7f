// Package schema is the schema of a host that also uses the extensions of ent's contrib module.
package schema

import (
	"entgo.io/contrib/entgql"
	"entgo.io/contrib/entproto"
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
	"github.com/gendurable/gendurable/integration/extensions/machine"
)

// Order is driven, and its delete cancels the checkout.
type Order struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Order) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenBy(machine.Checkout).OnDelete(entity.Cancel).OnUpdate("note")}
}

// Fields returns the fields of an order. The last ones have names that the extension uses, too.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("cents").Annotations(entproto.Field(2)),
		field.String("durable").Optional().Annotations(entproto.Field(4)),
		field.String("engine").Optional().Annotations(entproto.Field(5)),
		field.String("note").Default("").Annotations(entproto.Field(6)),
	}
}

// Edges returns the link to the customer.
func (Order) Edges() []ent.Edge {
	return []ent.Edge{edge.From("customer", Customer.Type).Ref("orders").Unique().Annotations(entproto.Field(3))}
}

// Annotations returns what the extensions read.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entgql.QueryField(), entgql.RelayConnection(), entgql.Mutations(entgql.MutationCreate(), entgql.MutationUpdate()),
		entproto.Message(), entproto.Service(),
	}
}

// Customer has orders, and no machine.
type Customer struct{ ent.Schema }

// Fields returns the fields of a customer.
func (Customer) Fields() []ent.Field {
	return []ent.Field{field.String("name").Annotations(entproto.Field(2))}
}

// Edges returns the link to the orders.
func (Customer) Edges() []ent.Edge {
	return []ent.Edge{edge.To("orders", Order.Type).Annotations(entproto.Field(3))}
}

// Annotations returns what the extensions read.
func (Customer) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entgql.QueryField(), entgql.RelayConnection(), entgql.Mutations(entgql.MutationCreate(), entgql.MutationUpdate()),
		entproto.Message(), entproto.Service(),
	}
}

// Parcel is created with its instance.
type Parcel struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Parcel) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("checkout").OnCreate()} }

// Fields returns the fields of a parcel.
func (Parcel) Fields() []ent.Field {
	return []ent.Field{field.Int64("cents").Default(3).Annotations(entproto.Field(2))}
}

// Annotations returns what the extensions read.
func (Parcel) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entgql.QueryField(), entgql.RelayConnection(), entgql.Mutations(entgql.MutationCreate(), entgql.MutationUpdate()),
		entproto.Message(), entproto.Service(),
	}
}

// Shipment is not created without its instance.
type Shipment struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Shipment) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("checkout").Required()} }

// Fields returns the fields of a shipment.
func (Shipment) Fields() []ent.Field {
	return []ent.Field{field.String("number").Annotations(entproto.Field(2))}
}

// Annotations returns what the extensions read.
func (Shipment) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entgql.QueryField(), entgql.RelayConnection(), entgql.Mutations(entgql.MutationCreate(), entgql.MutationUpdate()),
		entproto.Message(), entproto.Service(),
	}
}
