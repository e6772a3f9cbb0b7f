package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"

	"github.com/gendurable/gendurable/fsm"
)

// Signal is one signal in an instance's inbox, or the tombstone of a consumed one: a row of signals
// (spec §4).
type Signal struct{ ent.Schema }

// Annotations names the table and its checks.
func (Signal) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "signals"},
		entsql.Checks(map[string]string{
			"signals_names_check":  `octet_length(name) BETWEEN 1 AND 512 AND octet_length(dedup_key) BETWEEN 1 AND 512`,
			"signals_finite_check": `isfinite(consumed_at)`,
			"signals_times_check":  `isfinite(inserted_at)`,
		}),
	}
}

// Fields returns the columns.
func (Signal) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id").Annotations(identity()),
		field.Int64("target_id").GoType(fsm.ID(0)),
		field.Text("name"),
		field.JSON("payload", json.RawMessage{}).Annotations(entsql.Default("{}")),
		field.Text("dedup_key").Optional().Nillable(),
		field.Time("inserted_at").Immutable().Annotations(now()),
		field.Time("consumed_at").Optional().Nillable().
			Comment("set: a tombstone, hidden, which lets a late duplicate be recognised"),
		field.JSON("trace", map[string]string{}).Optional().Comment("the trace that it was sent in"),
	}
}

// Edges returns the link to the instance.
func (Signal) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("target", Instance.Type).Ref("signals").Unique().Required().Field("target_id"),
	}
}

// Indexes returns the indexes of signals.
func (Signal) Indexes() []ent.Index {
	return []ent.Index{
		// Postgres itself gives this name to the unique constraint of the base. ON CONFLICT would take an
		// index, too, but the catalogs differ.
		index.Fields("target_id", "dedup_key").Unique().StorageKey("signals_target_id_dedup_key_key").Annotations(IndexSQL{Constraint: true}),
		index.Fields("target_id", "name").StorageKey("signals_target"),
		partial("signals_consumed", "consumed_at IS NOT NULL", "target_id", "consumed_at"),
	}
}
