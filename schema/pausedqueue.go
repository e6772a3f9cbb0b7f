package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// PausedQueue is a queue from which nothing is claimed: a row of paused_queues, which exists
// exactly while the queue is paused.
type PausedQueue struct{ ent.Schema }

// Annotations names the table and its checks.
func (PausedQueue) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "paused_queues"},
		entsql.Checks(map[string]string{
			"paused_queues_names_check": `octet_length(queue) BETWEEN 1 AND 512`,
			"paused_queues_times_check": `isfinite(paused_at)`,
		}),
	}
}

// Fields returns the columns.
func (PausedQueue) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("queue").Comment("the queue's name"),
		field.Time("paused_at").Immutable().Annotations(now()),
	}
}
