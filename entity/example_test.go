package entity_test

import (
	"fmt"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
	"github.com/gendurable/gendurable/fsm"
)

// Cart is the state of a checkout, which a host declares in a package that does not import its
// client.
type Cart struct {
	Cents int64
	Tags  []string
}

var checkout = fsm.Declare[Cart, int64]("checkout", fsm.Version(2))

// Order is a schema of a host.
type Order struct{ ent.Schema }

func (Order) Mixin() []ent.Mixin {
	return []ent.Mixin{entity.DrivenBy(checkout).OnDelete(entity.Cancel)}
}

func (Order) Fields() []ent.Field { return []ent.Field{field.Int64("cents")} }

// The mixin adds one column, and tells package entity/extension, which generates what uses it, of
// the machine: its name and version, and fields of its state that have predicates.
func ExampleDrivenBy() {
	mixin := Order{}.Mixin()[0]
	column := mixin.Fields()[0].Descriptor()
	fmt.Println(column.Name, column.Unique, column.Nillable)
	said, ok := mixin.Annotations()[0].(entity.Annotation)
	fmt.Println(said.Machine, said.Version, said.Fields[0].Go, said.Without, ok)
	// Output:
	// instance_id true true
	// checkout 2 Cents [Tags] true
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
