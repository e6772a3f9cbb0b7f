package shape

import (
	"encoding"
	"encoding/json"
	"iter"
	"reflect"
)

// Of returns a type of the program that runs.
func Of(t reflect.Type) Type { return reflected{t} }

var methods = [...]reflect.Type{
	MarshalJSON:   reflect.TypeFor[json.Marshaler](),
	MarshalText:   reflect.TypeFor[encoding.TextMarshaler](),
	UnmarshalJSON: reflect.TypeFor[json.Unmarshaler](),
	UnmarshalText: reflect.TypeFor[encoding.TextUnmarshaler](),
}

type reflected struct{ t reflect.Type }

func (r reflected) String() string           { return r.t.String() }
func (r reflected) ID() any                  { return r.t }
func (r reflected) Kind() reflect.Kind       { return r.t.Kind() }
func (r reflected) Elem() Type               { return reflected{r.t.Elem()} }
func (r reflected) Key() Type                { return reflected{r.t.Key()} }
func (r reflected) Len() int                 { return r.t.Len() }
func (r reflected) NumMethod() int           { return r.t.NumMethod() }
func (r reflected) Has(m Method) bool        { return r.t.Implements(methods[m]) }
func (r reflected) PointerHas(m Method) bool { return reflect.PointerTo(r.t).Implements(methods[m]) }

func (r reflected) Path() string {
	if r.t.Name() == "" {
		return ""
	}
	return r.t.PkgPath() + "." + r.t.Name()
}

func (r reflected) Fields() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for f := range r.t.Fields() {
			if !yield(Field{Name: f.Name, Type: reflected{f.Type}, Tag: f.Tag, Embedded: f.Anonymous, Exported: f.IsExported()}) {
				return
			}
		}
	}
}
