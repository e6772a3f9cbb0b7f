package entity_test

import (
	"fmt"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
)

// Order is a schema of a host.
type Order struct{ ent.Schema }

func (Order) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenBy("checkout").OnDelete(entity.Cancel)}
}

func (Order) Fields() []ent.Field { return []ent.Field{field.Int64("cents")} }

// The mixin adds one column. Package entity/extension generates what uses it.
func ExampleDrivenBy() {
	column := Order{}.Mixin()[0].Fields()[0].Descriptor()
	fmt.Println(column.Name, column.Unique, column.Nillable)
	// Output: instance_id true true
}
