package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/fsm"
)

// NodeEdge lets a node of a graph wait for another one: a row of edges.
//
// It is a View, which is ent's word for rows without an id: the two nodes are the key, and ent has
// keys of two columns for relations with foreign keys only.
type NodeEdge struct{ ent.View }

// Annotations names the table, its check, its key and its index.
func (NodeEdge) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "edges"},
		TableSQL{
			PrimaryKey: []string{"from_id", "to_id"},
			Indexes:    []TableIndex{{Name: "edges_to", Columns: []string{"to_id"}}}, // the edges that lead to a node
		},
		entsql.Checks(map[string]string{"edges_needs_check": `needs BETWEEN 0 AND 3`}),
	}
}

// Fields returns the columns.
func (NodeEdge) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("from_id").GoType(fsm.ID(0)).Comment("the node that is waited for"),
		field.Int64("to_id").GoType(fsm.ID(0)).Comment("the node that waits"),
		field.Int16("needs").Comment("what the edge needs of the end: 0 done, 1 any, 2 failed, 3 one of a quorum's"),
	}
}
