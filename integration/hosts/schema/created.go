package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"

	"github.com/gendurable/gendurable/entity"
)

// Shipment is not created without its instance.
type Shipment struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Shipment) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("checkout").Required()} }

// Fields returns the fields of a shipment. Its ids are UUIDs; the carrier's number is unique too.
func (Shipment) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New),
		field.String("number").Unique(),
	}
}

// Parcel is created with its instance, by whatever way.
type Parcel struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Parcel) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("checkout").OnCreate()} }

// Fields returns the fields of a parcel. Postgres makes the ids; the number is unique.
func (Parcel) Fields() []ent.Field {
	return []ent.Field{
		field.String("number").Unique(),
		field.Int64("cents").Default(100),
	}
}

// Edges returns the parcels that a parcel holds.
func (Parcel) Edges() []ent.Edge {
	return []ent.Edge{edge.To("holds", Parcel.Type).From("holder").Unique()}
}

// Ticket signals its instance when its price, seat or tags change. Its gate has no part in that.
type Ticket struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Ticket) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenByName("checkout").OnUpdate("cents", "seat", "tags")}
}

// Fields returns the fields of a ticket.
func (Ticket) Fields() []ent.Field {
	return []ent.Field{
		field.Int("number").Unique(),
		field.Int64("cents").Default(0),
		field.String("seat").Optional(),
		field.String("gate").Optional(),
		field.Strings("tags").Optional(),
	}
}

// Pass is updated only while its instance is live, and is created with it.
type Pass struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Pass) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenByName("checkout").OnCreate().OnUpdate("cents").UpdateNeedsLive()}
}

// Fields returns the fields of a pass.
func (Pass) Fields() []ent.Field { return []ent.Field{field.Int64("cents").Default(0)} }

// Pager signals its instance when its tags change, which have no default.
type Pager struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Pager) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenByName("checkout").OnUpdate("tags")}
}

// Fields returns the fields of a pager.
func (Pager) Fields() []ent.Field {
	return []ent.Field{
		field.Int("number").Unique(),
		field.String("gate").Optional(),
		field.Strings("tags").Optional(),
	}
}
