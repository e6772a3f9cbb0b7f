package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

// Haul is driven by a machine whose state has many kinds of fields.
type Haul struct{ ent.Schema }

// Mixin returns the link to the instance.
func (Haul) Mixin() []ent.Mixin { return []ent.Mixin{entity.DrivenBy(machine.Deliver)} }

// Fields returns the fields of a haul. The last ones have names that a state has, too.
func (Haul) Fields() []ent.Field {
	return []ent.Field{field.Int("number"), field.String("state").Optional(), field.String("result").Optional()}
}
