// Package entity lets a host's ent schema say that a machine drives its entities:
//
//	func (Order) Mixin() []ent.Mixin {
//		return []ent.Mixin{entity.DrivenBy(shop.Checkout).OnDelete(entity.Cancel)}
//	}
//
// The mixin adds the column that points at the instance. Package entity/extension generates, into
// the host's own client, the code that connects the two: an entity and its instance are inserted
// together, a page of entities is read with its instances, queries go across both, and a delete
// does with a live instance what the schema says.
//
// The package is for schemas, so it imports neither the engine nor ent's generator.
package entity

import (
	"slices"

	"entgo.io/ent"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/mixin"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
)

// Field is the name of the field, and of the column, that points at an entity's instance.
const Field = "instance_id"

// Deletion says what becomes of the instance when its entity is deleted by the host's client. A row
// that is deleted otherwise, by SQL or by a cascade, leaves its instance alone.
type Deletion string

const (
	// Refuse refuses the delete while the instance is live, with an engine.ErrLive. Entities whose
	// instance has ended, or is gone, are deleted. It is the default.
	Refuse Deletion = "refuse"
	// Cancel cancels a live instance with all its live descendants, in the transaction of the delete.
	Cancel Deletion = "cancel"
	// Leave leaves the instance alone. Its steps have to expect that the entity is gone.
	Leave Deletion = "leave"
)

// Driven is the mixin of a schema whose entities are driven by a machine; [DrivenBy] and
// [DrivenByName] make it.
type Driven struct {
	mixin.Schema
	of Annotation
}

var _ ent.Mixin = Driven{}

// DrivenBy returns the mixin for entities that this machine drives, in whatever version. An entity
// has at most one instance at a time, or none.
//
// The generated client reads states and results as the machine declares them, so it imports the
// packages of both types: they are exported, and declared, with the machine, where the generated
// client is not imported. Otherwise use [DrivenByName]. Generate anew after a change of the
// declaration.
func DrivenBy[S, R any](machine *fsm.Machine[S, R]) Driven {
	d, ok := hidden.Declared(machine)
	if !ok {
		return DrivenByName("")
	}
	of := Annotation{Machine: d.Name, OnDelete: Refuse, Version: d.Version, StateSince: d.StateSince, ResultSince: d.ResultSince}
	of.State, of.Result = typeOf(d.State), typeOf(d.Result)
	of.Fields, of.Without = fieldsOf(d.State)
	return Driven{of: of}
}

// DrivenByName is [DrivenBy] for a machine that the schema cannot import. The generated client has
// nothing that knows the machine's types.
func DrivenByName(machine string) Driven {
	return Driven{of: Annotation{Machine: machine, OnDelete: Refuse}}
}

// OnDelete says what becomes of the instance when its entity is deleted.
func (d Driven) OnDelete(what Deletion) Driven {
	d.of.OnDelete = what
	return d
}

// Required refuses to create an entity without an instance. A plain Save, a bulk creation and an
// upsert return a *ValidationError of the host's client: create by SaveWith, or set the field to an
// instance that the same transaction has inserted. The guard comes behind all hooks. The column
// stays nullable, since the instance is inserted after its entity, whose id it needs.
func (d Driven) Required() Driven {
	d.of.Required = true
	return d
}

// OnCreate has each creation by the host's client insert the instance as well, in the entity's
// transaction: a plain Save, a bulk creation, an upsert. The program says which one, once, before
// it creates entities:
//
//	client.Order.OnCreate(eng, func(o *ent.Order) fsm.Spec { … })
//
// Without that call a creation fails as with [Driven.Required].
func (d Driven) OnCreate() Driven {
	d.of.OnCreate = true
	return d
}

// OnUpdate has each update by the host's client that sets, adds to, appends to or clears one of
// these fields signal the entity's instance, in the update's transaction. The fields are named as
// in the schema. The program says which signal, once, before it updates entities:
//
//	client.Order.OnUpdate(eng, func(o *ent.Order) fsm.Message { … })
//
// Without that call such an update is a *ValidationError. A field that is set to the value that it
// has counts as set. An entity without a live instance is updated alone, unless the schema says
// [Driven.UpdateNeedsLive].
//
// An upsert that would change one of the fields is a *ValidationError: ent does not tell which rows
// it has inserted, and which it has changed. An update through the other side's edge, Modify, SQL
// and cascades signal nothing.
func (d Driven) OnUpdate(fields ...string) Driven {
	d.of.OnUpdate = append(slices.Clone(d.of.OnUpdate), fields...)
	return d
}

// UpdateNeedsLive refuses an update that [Driven.OnUpdate] is about, with an engine.ErrNoTarget, if
// an entity has no live instance that takes the signal. Nothing is updated then.
func (d Driven) UpdateNeedsLive() Driven {
	d.of.UpdateNeedsLive = true
	return d
}

// Fields returns the column that points at the instance. Its index is unique, for three reasons:
// the instance belongs to one entity, so no other may cancel it; a step finds its entity by its
// own id; and a query from the instances' side, the failed ones of all orders, finds the few
// entities by it. Rows without an instance are NULL, of which a unique index takes any number.
//
// The column is no foreign key: the engine deletes instances after their retention, and a foreign
// key would refuse that, or delete the entities along.
func (Driven) Fields() []ent.Field {
	return []ent.Field{
		field.Int64(Field).GoType(fsm.ID(0)).Optional().Nillable().Unique().
			Comment("the instance that drives it; gone after the engine's retention").
			Annotations(forOthers...),
	}
}

// Annotations returns what the generator reads.
func (d Driven) Annotations() []entschema.Annotation { return []entschema.Annotation{d.of} }

// Annotation carries what a schema says to the generator.
type Annotation struct {
	Machine  string   `json:"machine"`
	OnDelete Deletion `json:"on_delete"`
	Required bool     `json:"required,omitempty"`
	OnCreate bool     `json:"on_create,omitempty"`

	OnUpdate        []string `json:"on_update,omitempty"` // names of fields
	UpdateNeedsLive bool     `json:"update_needs_live,omitempty"`

	// These are of the machine's declaration, if the schema has it: see [DrivenBy].
	Version     int   `json:"version,omitempty"`
	StateSince  int   `json:"state_since,omitempty"`
	ResultSince int   `json:"result_since,omitempty"`
	State       *Type `json:"state,omitempty"` // nil: the schema has a name only
	Result      *Type `json:"result,omitempty"`

	Fields  []StateField `json:"fields,omitempty"`  // of the state, with predicates
	Without []string     `json:"without,omitempty"` // fields of the state without predicates
}

// Guarded reports whether the client refuses to create an entity that gets no instance.
func (a Annotation) Guarded() bool { return a.Required || a.OnCreate }

// AnnotationName is the name under which ent stores an [Annotation].
const AnnotationName = "GendurableEntity"

// Name returns AnnotationName.
func (Annotation) Name() string { return AnnotationName }
