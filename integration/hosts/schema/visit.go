package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
)

// Visit goes when its customer wants it; the instance goes on.
type Visit struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Visit) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenByName("checkout").OnDelete(entity.Leave)}
}

// Fields returns the fields of a visit. Postgres makes the ids.
func (Visit) Fields() []ent.Field { return []ent.Field{field.String("page")} }
