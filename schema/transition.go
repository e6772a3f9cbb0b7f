package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
)

// Transition is what happened to an instance, or what an operator did: a row of history. The table
// is partitioned by day and only ever appended to, and its rows survive their instance.
//
// It is a View, which is ent's word for rows without an id: a partitioned table has no unique key
// without the partition's column, and an id would cost each commit an index.
type Transition struct{ ent.View }

// Annotations names the table, its partitioning and its indexes. One instance has few rows, so they
// are sorted when they are read. Operators' verbs are few among many transitions: the other indexes
// have only verbs.
func (Transition) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "history"},
		TableSQL{PartitionByRange: []string{"at"}, Indexes: []TableIndex{
			{Name: "history_instance", Columns: []string{"instance"}},
			{Name: "history_verbs", Columns: []string{"at"}, Where: "actor IS NOT NULL"},
			{Name: "history_actor", Columns: []string{"actor", "at"}, Where: "actor IS NOT NULL"},
			{Name: "history_kind", Columns: []string{"kind", "at"}, Where: "actor IS NOT NULL"},
			{Name: "history_subject", Columns: []string{"subject", "at"}, Where: "subject IS NOT NULL"},
		}},
	}
}

// Fields returns the columns.
func (Transition) Fields() []ent.Field {
	return []ent.Field{
		field.Time("at").Annotations(now()).Comment("of the commit, by the server's clock; decides about the partition"),
		field.Int64("instance").Optional().Nillable().Comment("NULL: an operator's verb on something else, such as a queue"),
		field.Int64("visit").Optional().Nillable().Comment("that ended; grows along an instance"),
		field.Int64("took").Optional().Nillable().Comment("how long the step ran, µs"),
		field.Int64("waited").Optional().Nillable().Comment("from when the step was due until it was claimed, µs"),
		field.Int32("attempt").Optional().Nillable().Comment("of the step, from 0"),
		field.Int32("version").StorageKey("fsm_version").Optional().Nillable(),
		field.Text("kind").Comment("the outcome's kind; crash, deadline; or of an operator: admin. and the verb"),
		field.UUID("worker", uuid.UUID{}).Optional().Nillable().Comment("that ran the step, or lost it"),
		field.Text("machine").StorageKey("fsm").Optional().Nillable(),
		field.Text("step").Optional().Nillable().Comment("that was left"),
		field.Text("to_step").Optional().Nillable().Comment("that was entered; NULL: none"),
		field.Text("failure").Optional().Nillable().Comment("of an instance that failed: why, as in gen_durable"),
		field.Text("error").Optional().Nillable(),
		field.Text("actor").Optional().Nillable().Comment("of an operator's verb: who"),
		field.Text("reason").Optional().Nillable().Comment("of an operator's verb: why"),
		field.Text("subject").Optional().Nillable().Comment("of a verb on no instance: what it was about, e.g. queue emails"),
		field.JSON("diff", json.RawMessage{}).Optional().Comment("from the state before to the one after, as an RFC 7386 merge patch"),
		field.JSON("before", json.RawMessage{}).Optional().Comment("of an operator's verb: what it found"),
		field.JSON("after", json.RawMessage{}).Optional().Comment("of an operator's verb: what it left"),
	}
}
