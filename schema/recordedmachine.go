package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// RecordedMachine is a machine whose transitions go to the history: a row of recorded_machines.
// Start of an engine that has the machine writes it, or deletes it, so that sweeps of processes
// that do not know the machine record what they do to its instances.
type RecordedMachine struct{ ent.Schema }

// Annotations names the table and its check.
func (RecordedMachine) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "recorded_machines"},
		TableOnly{},
		entsql.Checks(map[string]string{"recorded_machines_names_check": `octet_length(machine) BETWEEN 1 AND 512`}),
	}
}

// Fields returns the columns.
func (RecordedMachine) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("machine"),
		field.Time("since").Annotations(now()).Comment("when a process first recorded it"),
	}
}
