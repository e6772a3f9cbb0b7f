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
	return []ent.Mixin{entity.DrivenByName("checkout").OnDelete(entity.Cancel)}
}

func (Order) Fields() []ent.Field { return []ent.Field{field.Int64("cents")} }

// The mixin adds one column. Package entity/extension generates what uses it.
func ExampleDrivenBy() {
	column := Order{}.Mixin()[0].Fields()[0].Descriptor()
	fmt.Println(column.Name, column.Unique, column.Nillable)
	// Output: instance_id true true
}

// Ticket is a schema of a host. Its checkout hears of each new price.
type Ticket struct{ ent.Schema }

func (Ticket) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenByName("checkout").OnUpdate("cents").UpdateNeedsLive()}
}

func (Ticket) Fields() []ent.Field { return []ent.Field{field.Int64("cents")} }

// The generated client signals, once the program has said what:
//
//	client.Ticket.OnUpdate(eng, func(t *ent.Ticket) fsm.Message { return repriced.With(t.Cents) })
func ExampleDriven_OnUpdate() {
	said, ok := Ticket{}.Mixin()[0].Annotations()[0].(entity.Annotation)
	fmt.Println(said.OnUpdate, said.UpdateNeedsLive, ok)
	// Output: [cents] true true
}
