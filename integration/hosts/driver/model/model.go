// Package model is the schema of a host which runs all of its client on entpgx: most kinds of
// fields that ent knows.
package model

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/google/uuid"

	"github.com/gendurable/gendurable/schema"
)

// Owner has items.
type Owner struct{ ent.Schema }

// Fields returns the fields of an owner.
func (Owner) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").Unique(),
		field.String("note").Optional().Nillable(),
		field.Time("since").Default(time.Now),
	}
}

// Edges returns the items.
func (Owner) Edges() []ent.Edge { return []ent.Edge{edge.To("items", Item.Type)} }

// Item has a field of each kind.
type Item struct{ ent.Schema }

// Annotations adds a check.
func (Item) Annotations() []entschema.Annotation {
	return []entschema.Annotation{entsql.Check("size < 1000")}
}

// Fields returns the fields of an item.
func (Item) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New),
		field.String("name"),
		field.Int("size").NonNegative(),
		field.Float("price").Default(0),
		field.Bool("sold").Default(false),
		field.Enum("kind").Values("book", "film").Default("book"),
		field.Bytes("raw").Optional(),
		field.JSON("document", map[string]any{}).Optional(),
		field.Strings("tags").Optional(),
		field.Other("words", schema.Names{}).SchemaType(map[string]string{dialect.Postgres: "text[]"}).Optional(),
		field.Time("made").Optional().Nillable(),
	}
}

// Edges returns the owner.
func (Item) Edges() []ent.Edge {
	return []ent.Edge{edge.From("owner", Owner.Type).Ref("items").Unique()}
}

// Indexes returns the index of names.
func (Item) Indexes() []ent.Index { return []ent.Index{index.Fields("name").Edges("owner").Unique()} }
