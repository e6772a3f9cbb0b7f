package fsm

import (
	"fmt"
	"net/url"
	"reflect"
	"sync"

	"github.com/gendurable/gendurable/internal/shape"
)

var (
	formsAt   sync.Map // reflect.Type → *shape.Form, of values that have an address
	formsElse sync.Map // likewise, of others

	userinfo = reflect.TypeFor[url.Userinfo]()
)

func formOf(t reflect.Type, addressable bool) *shape.Form {
	forms := &formsElse
	if addressable {
		forms = &formsAt
	}
	known, ok := forms.Load(t)
	if !ok {
		form := shape.FormOf(shape.Of(t), addressable)
		known, _ = forms.LoadOrStore(t, &form)
	}
	return known.(*shape.Form) //nolint:forcetypeassert // only forms are stored
}

// CheckType returns an error if values of t, or of what it holds, do not come back from Encode and
// Decode as they were: interfaces with methods, functions, channels, unexported fields of structs,
// methods of a pointer where a value has no address (in maps). The tag json:"-" says that the loss
// of a field is meant. Types with their own methods for JSON or text are taken at their word, and
// unexported fields of messages of protobuf and of ent's entities are let pass. It looks at types
// only, so it knows nothing of what an untyped value will hold; Encode looks at that.
func (JSON) CheckType(t reflect.Type) error {
	f := formOf(t, true)
	if f.Lost != nil {
		return f.Lost
	}
	return f.Unread
}

// lostValue returns an error if an interface that v holds has content that its JSON lacks. The
// caller has encoded v before, so v is neither cyclic nor too deep.
func lostValue(v reflect.Value, at string) error { //nolint:gocognit // one case per kind of value
	if !v.IsValid() || !formOf(v.Type(), v.CanAddr()).Dynamic {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		in := v.Elem()
		if !in.IsValid() {
			return nil
		}
		if f := formOf(in.Type(), false); f.Lost != nil {
			return fmt.Errorf("%s holds %w", at, f.Lost)
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
