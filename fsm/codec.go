package fsm

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"sync"
	"unicode/utf8"

	"github.com/gendurable/gendurable/internal/shape"
	"github.com/gendurable/gendurable/internal/step"
)

// Codec makes JSON of states, results and payloads for storage, and values of the JSON again, e.g.
// to encrypt them. Both methods get pointers: Encode one to the value, so that methods of the
// pointer count, or the value itself if that is a pointer, and nil for a nil interface. Encode must
// return JSON that Postgres takes as jsonb; the engine checks that. Decode gets the JSON as
// Postgres normalised it: spaces, the order of keys and the spelling of numbers may differ. Both
// are called concurrently.
//
// A codec may also have the method CheckType of [JSON], e.g. by embedding it: engine.New, inserts
// and senders refuse the types for which it returns an error.
type Codec = step.Codec

// None is the state or result of a machine that has none. It is stored as {}.
type None struct{}

// JSON is the default [Codec]. It is encoding/json with four differences: a number in an untyped
// value decodes as a json.Number, so that no digit is lost that a float64 cannot hold; text that is
// not valid UTF-8 is an error, where encoding/json replaces it; content that the JSON would leave
// out without a word is an error ([JSON.CheckType]); anything but space after the value is an
// error.
type JSON struct{}

// Encode returns v as JSON, with the methods of v's pointer, if it has such. It refuses what
// encoding/json refuses (NaN, cycles, channels), text that is not valid UTF-8, and what would lose
// its content, as a struct with unexported fields only.
func (JSON) Encode(v any) (json.RawMessage, error) {
	v = step.Addressed(v)
	var form *shape.Form
	if v != nil {
		if form = formOf(reflect.TypeOf(v), false); form.Lost != nil {
			return nil, form.Lost
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	raw := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if !utf8.Valid(raw) || replaced(raw) && brokenText(reflect.ValueOf(v)) {
		return nil, errors.New("text is not valid UTF-8")
	}
	if form != nil && form.Dynamic {
		if err := lostValue(reflect.ValueOf(v), "the value"); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// replaced reports whether raw may hold the replacement character, which encoding/json writes for
// bytes that are no text: as an escape up to Go 1.26, as the character with GOEXPERIMENT=jsonv2. A
// value, too, may hold the character, and a raw message its escape, so the value itself decides.
func replaced(raw []byte) bool {
	if bytes.Contains(raw, []byte("\ufffd")) {
		return true
	}
	for rest := raw; ; {
		i := bytes.Index(rest, []byte(`\u`))
		if i < 0 {
			return false
		}
		if rest = rest[i+2:]; len(rest) >= 4 && bytes.EqualFold(rest[:4], []byte("fffd")) {
			return true
		}
	}
}

// Decode reads one value into v. It refuses an empty raw, a value of another type, and anything but
// space after the value.
func (JSON) Decode(raw json.RawMessage, v any) error {
	if !untyped(reflect.TypeOf(v)) && json.Unmarshal(raw, v) == nil {
		return nil // the decoder below words errors better, and decodes the numbers of untyped values
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("no value")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one value: at byte %d", d.InputOffset())
	}
	return nil
}

// untyped reports whether a value of type t can hold an interface: encoding/json chooses the types
// there, and would choose float64 for numbers.
func untyped(t reflect.Type) bool {
	if t == nil {
		return true
	}
	known, ok := untypedTypes.Load(t)
	if !ok {
		known, _ = untypedTypes.LoadOrStore(t, holdsInterface(t, map[reflect.Type]bool{}))
	}
	return known.(bool) //nolint:forcetypeassert // only booleans are stored
}

var untypedTypes sync.Map // reflect.Type → bool

func holdsInterface(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return holdsInterface(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if holdsInterface(field.Type, seen) {
				return true
			}
		}
	}
	return false
}

// brokenText reports whether v holds a string that is not valid UTF-8 in a place that encoding/json
// writes. The caller has encoded v before, so v is neither cyclic nor too deep.
func brokenText(v reflect.Value) bool { //nolint:gocognit // one case per kind of value
	if !v.IsValid() {
		return false
	}
	if v.CanInterface() {
		with := v.Interface()
		if v.CanAddr() && v.Kind() != reflect.Interface && v.Kind() != reflect.Pointer {
			with = v.Addr().Interface() // has the methods of the value, too
		}
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return false
		}
		switch m := with.(type) {
		case json.Marshaler:
			text, err := m.MarshalJSON()
			return err == nil && !utf8.Valid(text)
		case encoding.TextMarshaler:
			text, err := m.MarshalText()
			return err == nil && !utf8.Valid(text)
		}
	}
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return brokenText(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && brokenText(v.Field(i)) {
				return true
			}
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			if brokenText(i.Key()) || brokenText(i.Value()) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		for i := range v.Len() {
			if brokenText(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// encode makes JSON of v that can be stored. It runs in the guarded region of a step, so its error
// reaches the handler.
func encode(env *step.Env, v any) (json.RawMessage, error) {
	raw, err := env.Codec.Encode(step.Addressed(v))
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	err = step.CheckJSONB(raw, env.Limits.PayloadBytes)
	if err == nil && env.Codec != (JSON{}) && !json.Valid(raw) {
		err = step.ErrNotJSON
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return raw, nil
}

// decode returns an error also if a method of the type panics, e.g. an UnmarshalJSON: the handler
// gets that error, and a visit whose state is zero. A handler's visit decodes the same state, so a
// panic here would keep every handler from being called.
func decode[T any](c Codec, raw json.RawMessage, field string) (v T, err error) {
	err = decodeInto(c, raw, field, &v)
	return v, err
}

// decodeInto is decode without its type. The compiler copies generic functions for each machine of
// a host, so the generic functions of this package do little by themselves. Those that make a
// closure are not inlined, since each wrapper of a method would get a copy of it.
func decodeInto(c Codec, raw json.RawMessage, field string, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		if err != nil {
			reflect.ValueOf(v).Elem().SetZero() // drops the part that was decoded before the fault
			err = &DecodeError{Field: field, Err: err}
		}
	}()
	return c.Decode(raw, v)
}
