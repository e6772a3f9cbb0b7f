package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// KeptSignal is a signal to a correlation key that was free when it was sent: a row of
// kept_signals. It goes to the inbox of the first instance that occupies the key, or expires.
type KeptSignal struct{ ent.Schema }

// Annotations names the table and its checks.
func (KeptSignal) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "kept_signals"},
		entsql.Checks(map[string]string{
			"kept_signals_names_check": `octet_length(key) BETWEEN 1 AND 512 AND octet_length(name) BETWEEN 1 AND 512 ` +
				`AND octet_length(dedup_key) BETWEEN 1 AND 512`,
			"kept_signals_times_check": `isfinite(inserted_at) AND isfinite(expires_at)`,
		}),
	}
}

// Fields returns the columns.
func (KeptSignal) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id").Annotations(identity()),
		field.Text("key").Comment("the correlation key that it was sent to"),
		field.Text("name"),
		field.JSON("payload", json.RawMessage{}).Annotations(entsql.Default("{}")),
		field.Text("dedup_key").Optional().Nillable(),
		field.Time("inserted_at").Immutable().Annotations(now()),
		field.Time("expires_at").Comment("until when it is kept"),
		field.JSON("trace", map[string]string{}).Optional().Comment("the trace that it was sent in"),
	}
}

// Indexes returns the indexes of kept_signals.
func (KeptSignal) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("key", "dedup_key").Unique().StorageKey("kept_signals_key"),
		index.Fields("expires_at").StorageKey("kept_signals_expiry"),
	}
}
