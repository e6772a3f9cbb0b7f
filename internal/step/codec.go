package step

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Codec makes JSON of states, results and payloads, and values of the JSON again. fsm.Codec is this
// type.
type Codec interface {
	Encode(v any) (json.RawMessage, error)
	Decode(raw json.RawMessage, v any) error
}

// TypeChecker is a [Codec] that knows types whose values it cannot give back.
type TypeChecker interface {
	// CheckType returns why values of t do not come back as they were.
	CheckType(t reflect.Type) error
}

// CheckType returns why values of t do not come back from a codec as they were; nil if the codec
// does not say, or if there is no type.
func CheckType(c Codec, t reflect.Type) error {
	if checker, ok := c.(TypeChecker); ok && t != nil {
		return checker.CheckType(t)
	}
	return nil
}

// Addressed returns a pointer to a copy of v; v itself if it is a pointer, or nil. Methods of the
// pointer, such as a MarshalJSON, count only for a value that has an address.
func Addressed(v any) any {
	of := reflect.ValueOf(v)
	if !of.IsValid() || of.Kind() == reflect.Pointer {
		return v
	}
	p := reflect.New(of.Type())
	p.Elem().Set(of)
	return p.Interface()
}

// Texts decodes the texts that an instance has by name, such as its labels. SQL of others may have
// put in what is no text: it counts as the text that Postgres' ->> makes of it, by which gates read
// it, too; a null as none. Texts returns nil for anything but an object.
func Texts(raw []byte) (texts map[string]string) {
	if len(raw) == 0 || json.Unmarshal(raw, &texts) == nil && !bytes.Contains(raw, []byte("null")) {
		return texts
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil || values == nil {
		return nil
	}
	texts = make(map[string]string, len(values))
	for name, value := range values {
		var text string
		switch {
		case string(value) == "null":
		case json.Unmarshal(value, &text) == nil:
			texts[name] = text
		default:
			texts[name] = string(value)
		}
	}
	return texts
}
