package fsm

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"sync"
)

// form is what [JSON] makes of the values of a type.
type form struct {
	lost    error // content that it would leave out without a word
	unread  error // what it cannot encode, or not decode again
	dynamic bool  // values may hold what only they can tell: walk them
}

var (
	formsAt   sync.Map // reflect.Type → *form, of values that have an address
	formsElse sync.Map // likewise, of others

	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	userinfo        = reflect.TypeFor[url.Userinfo]()
)

func formOf(t reflect.Type, addressable bool) *form {
	forms := &formsElse
	if addressable {
		forms = &formsAt
	}
	known, ok := forms.Load(t)
	if !ok {
		w := formWalk{seen: map[walked]bool{}, inlined: map[reflect.Type]bool{}}
		w.value(t, typeName(t), addressable, false)
		known, _ = forms.LoadOrStore(t, &w.form)
	}
	return known.(*form) //nolint:forcetypeassert // only forms are stored
}

func typeName(t reflect.Type) string {
	if t.Name() == "" && t.Kind() == reflect.Struct {
		return "struct"
	}
	return t.String()
}

// formWalk looks at a type and at all that its values hold. It keeps the first fault of each kind.
type formWalk struct {
	form

	seen    map[walked]bool
	inlined map[reflect.Type]bool // the embedded structs around the fields that are looked at
}

// walked is a type that was looked at, and whether its value has an address, since methods of the
// pointer count only there.
type walked struct {
	of                   reflect.Type
	addressable, decodes bool
}

func (w *formWalk) loses(at, format string, a ...any) {
	if w.lost == nil {
		w.lost = fmt.Errorf("%s: "+format, append([]any{at}, a...)...)
	}
}

func (w *formWalk) cannot(decodes bool, at, format string, a ...any) {
	if w.unread == nil && !decodes {
		w.unread = fmt.Errorf("%s: "+format, append([]any{at}, a...)...)
	}
}

// value looks at a type of values that stand at a place. decodes says that a method of what holds
// them decodes them: it may do what encoding/json cannot.
func (w *formWalk) value(t reflect.Type, at string, addressable, decodes bool) {
	if t.Kind() == reflect.Interface {
		if w.dynamic = true; t.NumMethod() > 0 {
			w.cannot(decodes, at, "nothing says which type to decode for the interface %v: use a type, or exclude the field by json:\"-\"", t)
		}
		return
	}
	here := walked{t, addressable, decodes}
	if w.seen[here] {
		return
	}
	w.seen[here] = true
	if t == userinfo { // in every url.URL, seldom set
		w.dynamic = true
		return
	}
	if t.Kind() != reflect.Pointer {
		decodes = decodes || reflect.PointerTo(t).Implements(jsonUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler)
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
		if shown, hidden := w.fields(t, at, addressable, decodes); shown == 0 && hidden > 0 {
			w.loses(at, "all fields of %v are unexported, so its JSON has none of them: export them, give the type methods "+
				"MarshalJSON and UnmarshalJSON, or exclude it by json:\"-\"", t)
		}
	}
}

// own reports whether methods of a type make its JSON.
func (w *formWalk) own(t reflect.Type, at string, addressable, decodes bool) bool {
	pointer := reflect.PointerTo(t)
	for _, m := range []struct {
		method string
		of     reflect.Type
	}{{"MarshalJSON", jsonMarshaler}, {"MarshalText", textMarshaler}} {
		switch {
		case !pointer.Implements(m.of):
			continue
		case !addressable && !t.Implements(m.of):
			w.loses(at, "the %s of %v is a method of the pointer, and counts neither in a map nor in an interface: hold a *%v there", m.method, t, t)
		case m.of == textMarshaler && !decodes && t.Kind() != reflect.String:
			w.cannot(decodes, at, "%v has a MarshalText, and no UnmarshalText", t)
		}
		return true
	}
	return false
}

func (w *formWalk) key(t reflect.Type, at string, decodes bool) {
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return
	}
	if !t.Implements(textMarshaler) || !decodes && !t.Implements(textUnmarshaler) && !reflect.PointerTo(t).Implements(textUnmarshaler) {
		w.cannot(false, at, "JSON has no keys of type %v: want strings, integers, or MarshalText and UnmarshalText", t)
	}
}

// fields looks at the fields of a struct, and counts those that are in its JSON, or are excluded on
// purpose, and those that are not.
func (w *formWalk) fields(t reflect.Type, at string, addressable, decodes bool) (shown, hidden int) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if tag == "-" {
			shown++
			continue
		}
		in, pointed := f.Type, false
		if f.Anonymous && in.Kind() == reflect.Pointer {
			in, pointed = in.Elem(), true
		}
		inside := at + "." + f.Name
		switch {
		case f.Anonymous && in.Kind() == reflect.Struct && (tag == "" || tag[0] == ','):
			if w.inlined[in] {
				continue
			}
			w.inlined[in] = true
			s, h := w.fields(in, inside, addressable || pointed, decodes)
			delete(w.inlined, in)
			if pointed && !f.IsExported() && s > 0 {
				w.cannot(decodes, inside, "JSON does not decode into an embedded pointer to the unexported %v", in)
			}
			shown, hidden = shown+s, hidden+h
		case f.IsExported() || f.Anonymous && in.Kind() == reflect.Struct:
			shown++
			w.value(f.Type, inside, addressable, decodes)
		case f.Name != "_":
			hidden++
		}
	}
	return shown, hidden
}

// CheckType returns an error if values of t, or of what it holds, do not come back from Encode and
// Decode as they were: interfaces with methods, functions, channels, structs with unexported fields
// only, methods of a pointer where a value has no address (in maps). It looks at types only, so it
// knows nothing of what an untyped value will hold; Encode looks at that.
func (JSON) CheckType(t reflect.Type) error {
	f := formOf(t, true)
	if f.lost != nil {
		return f.lost
	}
	return f.unread
}

// lostValue returns an error if an interface that v holds has content that its JSON lacks. The
// caller has encoded v before, so v is neither cyclic nor too deep.
func lostValue(v reflect.Value, at string) error { //nolint:gocognit // one case per kind of value
	if !v.IsValid() || !formOf(v.Type(), v.CanAddr()).dynamic {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		in := v.Elem()
		if !in.IsValid() {
			return nil
		}
		if f := formOf(in.Type(), false); f.lost != nil {
			return fmt.Errorf("%s holds %w", at, f.lost)
		}
		return lostValue(in, at)
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return lostValue(v.Elem(), at)
	case reflect.Struct:
		if v.Type() == userinfo {
			return fmt.Errorf("%s: the JSON of a url.URL has no user and no password: store its text", at)
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				if err := lostValue(v.Field(i), at+"."+f.Name); err != nil {
					return err
				}
			}
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			if err := lostValue(i.Value(), fmt.Sprintf("%s[%v]", at, i.Key())); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := lostValue(v.Index(i), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}
