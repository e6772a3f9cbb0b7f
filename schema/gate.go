package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Gate bounds how many instances execute at a time: a row of gates.
type Gate struct{ ent.Schema }

// Annotations names the table and its checks.
func (Gate) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "gates"},
		entsql.Checks(map[string]string{
			// The name ends at the first slash of an instance's gate.
			"gates_names_check": `octet_length(name) BETWEEN 1 AND 64 AND strpos(name, '/') = 0 AND octet_length(queue) BETWEEN 1 AND 512 ` +
				`AND octet_length(machine) BETWEEN 1 AND 512 AND octet_length(step) BETWEEN 1 AND 512 AND octet_length(label) BETWEEN 1 AND 64`,
			"gates_places_check": `places BETWEEN 0 AND 10000 AND (step IS NULL OR machine IS NOT NULL)`,
		}),
	}
}

// Fields returns the columns.
func (Gate) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("name"),
		field.Text("queue").Optional().Nillable().Comment("only instances of this queue"),
		field.Text("machine").Optional().Nillable().Comment("only instances of this machine"),
		field.Text("step").Optional().Nillable().Comment("only at this step of the machine"),
		field.Text("label").Optional().Nillable().Comment("so many of each value of this label, instead of so many in all"),
		field.Int32("places").Comment("how many execute at a time"),
		field.Time("updated_at").Annotations(now()),
	}
}
