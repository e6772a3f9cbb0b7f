package entity

import entschema "entgo.io/ent/schema"

// These annotations tell the extensions of ent's contrib module about the field of the instance.
// They have no effect without those extensions. The package imports none of them: a host may use
// other versions, or none.

// ofOpenAPI is entoas' Annotation, as far as the field needs it: its Go type is none that entoas
// knows. No client sets it, since SaveWith does.
type ofOpenAPI struct {
	Schema   map[string]string
	ReadOnly bool
}

// Name returns the name of entoas' annotation.
func (ofOpenAPI) Name() string { return "EntOAS" }

// notInProto is entproto's Skip: a field of a message has a number, and only the host knows which
// ones its messages have taken.
type notInProto struct{}

// Name returns the name of entproto's annotation.
func (notInProto) Name() string { return "ProtoSkip" }

var forOthers = []entschema.Annotation{
	ofOpenAPI{Schema: map[string]string{"type": "integer", "format": "int64"}, ReadOnly: true},
	notInProto{},
}
