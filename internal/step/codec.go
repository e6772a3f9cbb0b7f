package step

import (
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
