package entity

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// StateField is a field of a state by which generated code selects and orders entities.
type StateField struct {
	Type

	// Go is the field's name behind the names of the structs around it, as in Address.City. Path is
	// the same in JSON.
	Go   string   `json:"go"`
	Path []string `json:"path"`
	// Of is the type of package entity/state that has its predicates: Ordered, Text or Bool.
	Of string `json:"of"`
}

// depth is how many structs a field may be in, the state among them.
const depth = 2

// fieldsOf returns the fields of a state that have predicates, and the names of those that do not.
func fieldsOf(state reflect.Type) (fields []StateField, without []string) {
	w := walk{root: state}
	w.fields(state, place{})
	return w.found, w.without
}

// place is where in the state a field is.
type place struct {
	index []int
	names []string // of Go, without embedded structs
	path  []string // in JSON
}

type walk struct {
	root    reflect.Type
	found   []StateField
	without []string
}

func (w *walk) fields(t reflect.Type, at place) {
	if t.Kind() != reflect.Struct || codes(t) {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("json") == "-" || !f.IsExported() && !f.Anonymous {
			continue // it is not stored
		}
		in := place{index: append(slices.Clone(at.index), i), names: at.names, path: at.path}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct && !codes(f.Type) {
			w.fields(f.Type, in)
			continue
		}
		if name == "" {
			name = f.Name
		}
		in.names, in.path = append(slices.Clone(at.names), f.Name), append(slices.Clone(at.path), name)
		w.field(f.Type, in)
	}
}

// field notes a field, or the fields of a struct.
func (w *walk) field(t reflect.Type, at place) {
	if t.Kind() == reflect.Struct && !codes(t) && len(at.names) < depth {
		w.fields(t, at)
		return
	}
	of, sample := predicates(t)
	described := typeOf(t)
	if of == "" || described.Fault != "" || !w.named(at) || !w.stored(at, sample) {
		w.without = append(w.without, strings.Join(at.names, "."))
		return
	}
	w.found = append(w.found, StateField{Type: *described, Go: strings.Join(at.names, "."), Path: at.path, Of: of})
}

// named reports whether the names lead to the field in another package. A field may hide it.
func (w *walk) named(at place) bool {
	t, index := w.root, []int{}
	for _, name := range at.names {
		f, ok := t.FieldByName(name)
		if !ok || !f.IsExported() {
			return false
		}
		t, index = f.Type, append(index, f.Index...)
	}
	return slices.Equal(index, at.index)
}

// stored reports whether the JSON of a state has a field's value at its path.
func (w *walk) stored(at place, sample any) bool {
	v := reflect.New(w.root)
	f := v.Elem().FieldByIndex(at.index)
	if !f.CanSet() {
		return false
	}
	f.Set(reflect.ValueOf(sample).Convert(f.Type()))
	whole, err := fsm.JSON{}.Encode(v.Interface())
	if err != nil {
		return false
	}
	want, err := json.Marshal(sample)
	if err != nil {
		return false
	}
	for _, name := range at.path {
		members := map[string]json.RawMessage{}
		if json.Unmarshal(whole, &members) != nil {
			return false
		}
		whole = members[name]
	}
	return string(whole) == string(want)
}

// predicates returns the type that has the predicates of values of a type, and such a value; "" if
// none has.
func predicates(t reflect.Type) (of string, sample any) {
	if t == reflect.TypeFor[time.Time]() {
		return "Ordered", time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	}
	if codes(t) {
		return "", nil
	}
	switch t.Kind() {
	case reflect.String:
		return "Text", "a"
	case reflect.Bool:
		return "Bool", true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "Ordered", 1
	case reflect.Float32, reflect.Float64:
		return "Ordered", 1.5
	}
	return "", nil
}

// codes reports whether methods of a type make its JSON, or read it.
func codes(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return slices.ContainsFunc([]reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	}, p.Implements)
}
