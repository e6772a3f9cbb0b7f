package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"

	"github.com/gendurable/gendurable/entity"
)

// Invoice is not deleted before it is settled. Its ids are UUIDs.
type Invoice struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Invoice) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenByName("checkout")} }

// Fields returns the fields of an invoice.
func (Invoice) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New),
		field.Int64("cents"),
	}
}

// Edges returns the link to the ledger that an invoice is in.
func (Invoice) Edges() []ent.Edge {
	return []ent.Edge{edge.From("ledger", Ledger.Type).Ref("invoices").Unique()}
}

// Ledger has invoices, and no machine.
type Ledger struct{ ent.Schema }

// Edges returns the link to the invoices.
func (Ledger) Edges() []ent.Edge { return []ent.Edge{edge.To("invoices", Invoice.Type)} }
