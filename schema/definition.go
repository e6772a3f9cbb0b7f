package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Definition is a machine as a program has declared it: a row of definitions. Start stores it, so
// that programs that were not compiled with the machine can draw it.
type Definition struct{ ent.Schema }

// Annotations names the table and its checks.
func (Definition) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "definitions"},
		entsql.Checks(map[string]string{
			"definitions_names_check": `octet_length(machine) BETWEEN 1 AND 512 AND version >= 1 AND definition = machine || '/' || version::text`,
			"definitions_graph_check": `jsonb_typeof(graph) = 'object'::text AND isfinite(declared_at) AND isfinite(updated_at)`,
		}),
	}
}

// Fields returns the columns.
func (Definition) Fields() []ent.Field {
	return []ent.Field{
		field.Text("id").StorageKey("definition").Comment("machine/version"),
		field.Text("machine").Immutable(),
		field.Int32("version").Immutable(),
		field.JSON("graph", json.RawMessage{}).Comment("an fsm.Diagram"),
		field.Time("declared_at").Immutable().Annotations(now()).Comment("when a program first declared it"),
		field.Time("updated_at").Annotations(now()).Comment("when a program last declared it otherwise"),
	}
}
