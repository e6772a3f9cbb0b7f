package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/google/uuid"
)

// LostClaim is a claim with a partition key that was taken away from its worker while the step
// might still run there: a row of lost_claims. The next claim of the key waits until that step has
// ended, or its worker is gone; then the row goes. In normal operation there is none.
type LostClaim struct{ ent.Schema }

// Annotations name the table and its check.
func (LostClaim) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "lost_claims"},
		TableOnly{},
		entsql.Checks(map[string]string{"lost_claims_finite_check": `isfinite(lost_at)`}),
	}
}

// Fields are the columns.
func (LostClaim) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Immutable().Annotations(entsql.DefaultExpr("gen_random_uuid()")),
		field.Text("partition_key").Immutable(),
		field.Text("worker").Immutable().Comment("the locked_by that the claim had"),
		field.Int64("claim_token").Immutable(),
		field.Time("lost_at").Immutable().Annotations(now()),
	}
}

// Indexes of lost_claims.
func (LostClaim) Indexes() []ent.Index {
	return []ent.Index{index.Fields("partition_key").StorageKey("lost_claims_key")}
}
