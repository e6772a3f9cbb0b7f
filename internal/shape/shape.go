// Package shape finds what encoding/json would lose of the values of a type, or could not read
// again. It sees types through an interface: a program that runs asks by reflection ([Of]), package
// vet by go/types. So both have the same rules and the same words.
package shape

import (
	"fmt"
	"iter"
	"reflect"
	"strings"
)

// Type is a type as reflection or the type checker knows it.
type Type interface {
	fmt.Stringer // as messages name it: with the name of its package, not its path

	ID() any      // comparable, the same for the same type
	Path() string // of a declared type: the path of its package, a dot and its name
	Kind() reflect.Kind
	Elem() Type               // of a pointer, slice, array or map
	Key() Type                // of a map
	Len() int                 // of an array
	NumMethod() int           // of an interface
	Fields() iter.Seq[Field]  // of a struct
	Has(m Method) bool        // whether the method is one of the value
	PointerHas(m Method) bool // whether the method is one of the value or of a pointer to it
}

// Field is a field of a struct.
type Field struct {
	Name               string
	Type               Type
	Tag                reflect.StructTag
	Embedded, Exported bool
}

// Method is a method that encoding/json looks for, with its signature.
type Method int

// The methods.
const (
	MarshalJSON Method = iota
	MarshalText
	UnmarshalJSON
	UnmarshalText
)

func (m Method) String() string {
	return [...]string{"MarshalJSON", "MarshalText", "UnmarshalJSON", "UnmarshalText"}[m]
}

// Form is what encoding/json makes of the values of a type. Of several faults it has the first.
type Form struct {
	Lost    error // content that it would leave out without a word
	Unread  error // what it cannot encode, or not decode again
	Dynamic bool  // values may hold what only they can tell: walk them
}

// FormOf looks at a type, and at all that its values hold. addressable says whether methods of the
// pointer count, as they do for a value that has an address.
func FormOf(t Type, addressable bool) Form {
	w := walk{seen: map[walked]bool{}, inlined: map[any]bool{}, edges: map[any]bool{}}
	w.value(t, typeName(t), addressable, false)
	return w.Form
}

// Userinfo is the type that is in every url.URL, and seldom set.
const Userinfo = "net/url.Userinfo"

// These are the types of unexported fields that ent generates into entities, and protobuf into
// messages. A program cannot tag such a field, nor those beside it. To look for the method
// ProtoReflect instead would make a host's binary larger.
const (
	selectValues = "entgo.io/ent/dialect/sql.SelectValues"
	messageState = "protobuf/internal/impl.MessageState"
)

func typeName(t Type) string {
	if t.Path() == "" && t.Kind() == reflect.Struct {
		return "struct"
	}
	return t.String()
}

type walk struct {
	Form

	seen    map[walked]bool
	inlined map[any]bool // the embedded structs around the fields that are looked at
	edges   map[any]bool // the structs of edges of ent's entities
}

// walked is a type that was looked at, and whether its value has an address, since methods of the
// pointer count only there.
type walked struct {
	of                   any
	addressable, decodes bool
}

func (w *walk) loses(at, format string, a ...any) {
	if w.Lost == nil {
		w.Lost = fmt.Errorf("%s: "+format, append([]any{at}, a...)...)
	}
}

func (w *walk) cannot(decodes bool, at, format string, a ...any) {
	if w.Unread == nil && !decodes {
		w.Unread = fmt.Errorf("%s: "+format, append([]any{at}, a...)...)
	}
}

// value looks at a type of values that stand at a place. decodes says that a method of the type
// around them decodes them: it may do what encoding/json cannot.
func (w *walk) value(t Type, at string, addressable, decodes bool) {
	if t.Kind() == reflect.Interface {
		if w.Dynamic = true; t.NumMethod() > 0 {
			w.cannot(decodes, at, "nothing says which type to decode for the interface %v: use a type, or exclude the field by json:\"-\"", t)
		}
		return
	}
	here := walked{t.ID(), addressable, decodes}
	if w.seen[here] {
		return
	}
	w.seen[here] = true
	if t.Path() == Userinfo {
		w.Dynamic = true
		return
	}
	if t.Kind() != reflect.Pointer {
		decodes = decodes || t.PointerHas(UnmarshalJSON) || t.PointerHas(UnmarshalText)
		if w.own(t, at, addressable, decodes) {
			return
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		w.value(t.Elem(), at, true, decodes)
	case reflect.Complex64, reflect.Complex128, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		w.cannot(false, at, "there is no JSON of %v: exclude the field by json:\"-\"", t)
	case reflect.Slice:
		w.value(t.Elem(), at+"[]", true, decodes)
	case reflect.Array:
		w.value(t.Elem(), at+"[]", addressable, decodes)
	case reflect.Map:
		w.key(t.Key(), at, decodes)
		w.value(t.Elem(), at+"[]", false, decodes)
	case reflect.Struct:
		switch found := w.fields(t, at, addressable, decodes); {
		case found.hidden == 0:
		case locks(t):
			w.loses(at, "%v is not stored%s: take it out of the type", t, another(t))
		case found.shown == 0:
			w.loses(at, "all fields of %v are unexported, so its JSON has none of them: export them, give the type methods "+
				"MarshalJSON and UnmarshalJSON, or exclude it by json:\"-\"", t)
		case decodes || generated(t) || w.edges[t.ID()]: // others restore what is hidden
		case found.lock != nil:
			w.loses(found.at, "%v is not stored%s: take it out of the type", found.lock, another(found.lock))
		default:
			w.loses(found.at, "the field is unexported, so JSON loses it: export it, tag it json:\"-\" if that is meant, or, "+
				"where the type is not yours, store one of yours, or one with MarshalJSON and UnmarshalJSON")
		}
	}
}

// another says of a type of package sync what each run of a step has of it.
func another(t Type) string {
	switch t.Path() {
	case "sync.Mutex", "sync.RWMutex", "sync.Locker":
		return ", and each run of a step has another one, so it keeps nobody out"
	}
	return ", and each run of a step has another one"
}

// locks reports whether a type is one of package sync.
func locks(t Type) bool { return strings.HasPrefix(t.Path(), "sync.") }

// generated reports whether a struct is an entity of ent or a message of protobuf.
func generated(t Type) bool {
	for f := range t.Fields() {
		if of := f.Type.Path(); of == selectValues || strings.HasSuffix(of, messageState) {
			return true
		}
	}
	return false
}

// own reports whether methods of a type make its JSON.
func (w *walk) own(t Type, at string, addressable, decodes bool) bool {
	for _, m := range []Method{MarshalJSON, MarshalText} {
		switch {
		case !t.PointerHas(m):
			continue
		case !addressable && !t.Has(m):
			w.loses(at, "the %s of %v is a method of the pointer, and counts neither in a map nor in an interface: hold a *%v there", m, t, t)
		case m == MarshalText && !decodes && t.Kind() != reflect.String:
			w.cannot(decodes, at, "%v has a MarshalText, and no UnmarshalText", t)
		}
		return true
	}
	return false
}

func (w *walk) key(t Type, at string, decodes bool) {
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return
	}
	if !t.Has(MarshalText) || !decodes && !t.PointerHas(UnmarshalText) {
		w.cannot(false, at, "JSON has no keys of type %v: want strings, integers, or MarshalText and UnmarshalText", t)
	}
}

// found counts the fields of a struct that are in its JSON, or are excluded on purpose, and those
// that are not.
type found struct {
	shown, hidden int
	at            string // of the first hidden one
	lock          Type   // its type, if that is one of package sync
}

func (n *found) hide(at string, of Type) {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if n.hidden++; n.hidden == 1 {
		if n.at = at; locks(of) {
			n.lock = of
		}
	}
}

// promote adds the fields of an embedded struct.
func (n *found) promote(deep found, at string, of Type) {
	n.shown += deep.shown
	switch {
	case deep.hidden == 0:
	case locks(of):
		n.hide(at, of)
	case n.hidden == 0:
		n.hidden, n.at, n.lock = deep.hidden, deep.at, deep.lock
	default:
		n.hidden += deep.hidden
	}
}

// note notes the type of the edges of one of ent's entities.
func (w *walk) note(t Type) {
	if !generated(t) {
		return
	}
	for f := range t.Fields() {
		if f.Name == "Edges" {
			w.edges[f.Type.ID()] = true
		}
	}
}

// fields looks at the fields of a struct.
func (w *walk) fields(t Type, at string, addressable, decodes bool) (n found) {
	w.note(t)
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if tag == "-" {
			n.shown++
			continue
		}
		in, pointed := f.Type, false
		if f.Embedded && in.Kind() == reflect.Pointer {
			in, pointed = in.Elem(), true
		}
		inside := at + "." + f.Name
		switch {
		case f.Embedded && in.Kind() == reflect.Struct && (tag == "" || tag[0] == ','):
			id := in.ID()
			if w.inlined[id] {
				continue
			}
			w.inlined[id] = true
			deep := w.fields(in, inside, addressable || pointed, decodes)
			delete(w.inlined, id)
			if pointed && !f.Exported && deep.shown > 0 {
				w.cannot(decodes, inside, "JSON does not decode into an embedded pointer to the unexported %v", in)
			}
			if deep.shown > 0 && generated(in) {
				deep.hidden = 0 // others restore it
			}
			n.promote(deep, inside, in)
		case f.Exported || f.Embedded && in.Kind() == reflect.Struct:
			n.shown++
			w.value(f.Type, inside, addressable, decodes)
		case f.Name != "_" && !bare(in):
			n.hide(inside, in)
		}
	}
	return n
}

// bare reports whether a type is a struct without fields or an array without elements, and so has
// nothing to lose.
func bare(t Type) bool {
	if t.Kind() == reflect.Array {
		return t.Len() == 0
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for range t.Fields() {
		return false
	}
	return true
}
