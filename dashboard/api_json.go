package dashboard

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// The API sends Go values by their JSON names, with three more rules: ids are strings, since
// JavaScript and many other clients lose digits of a number beyond 2^53; times are in UTC; and a
// list that has nothing in it is [], never null. schemaOf describes exactly what plainJSON makes.

var (
	idType       = reflect.TypeFor[fsm.ID]()
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	statusType   = reflect.TypeFor[fsm.Status]()
)

// apiField is a field of a struct as JSON has it.
type apiField struct {
	name  string
	index []int
	of    reflect.Type
	omit  bool // it is left out where it is zero
}

// apiFields returns the fields of a struct, including embedded ones.
func apiFields(t reflect.Type) (all []apiField) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous && name == "" || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		all = append(all, apiField{name, f.Index, f.Type, strings.Contains(options, "omit")})
	}
	return all
}

// plainJSON returns a value that encoding/json writes by the rules of the API.
func plainJSON(v reflect.Value) any {
	switch {
	case !v.IsValid():
		return nil
	case v.Type() == idType:
		return strconv.FormatInt(v.Int(), 10)
	case v.Type() == timeType:
		at, _ := reflect.TypeAssert[time.Time](v)
		return at.UTC()
	case v.Type() == rawType:
		if raw := v.Bytes(); len(raw) > 0 {
			return json.RawMessage(raw)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plainJSON(v.Elem())
	case reflect.Struct:
		out := map[string]any{}
		for _, f := range apiFields(v.Type()) {
			field := v.FieldByIndex(f.index)
			if f.omit && (field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0 || field.Kind() == reflect.Map && field.Len() == 0) {
				continue
			}
			out[f.name] = plainJSON(field)
		}
		return out
	case reflect.Slice:
		out := make([]any, v.Len())
		for n := range out {
			out[n] = plainJSON(v.Index(n))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for key, value := range v.Seq2() {
			out[fmt.Sprint(key.Interface())] = plainJSON(value)
		}
		return out
	}
	return v.Interface()
}

// jsonSchema is a JSON Schema, in the dialect of OpenAPI 3.1.
type jsonSchema map[string]any

// schemas collects the schemas of structs by the names of their types.
type schemas map[string]jsonSchema

// schemaOf describes what plainJSON makes of a type, and what a body of the type may be.
func (all schemas) schemaOf(t reflect.Type) jsonSchema {
	switch t {
	case idType:
		return jsonSchema{"type": "string", "pattern": "^[0-9]+$", "description": "An id: a whole number of 64 bits."}
	case timeType:
		return jsonSchema{"type": "string", "format": "date-time"}
	case durationType:
		return jsonSchema{"type": "integer", "description": "Nanoseconds."}
	case rawType:
		return jsonSchema{"description": "Any JSON."}
	case statusType:
		return jsonSchema{"type": "string", "enum": fsm.Statuses()}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return jsonSchema{"anyOf": []jsonSchema{all.schemaOf(t.Elem()), {"type": "null"}}}
	case reflect.Struct:
		name := schemaName(t)
		if _, made := all[name]; !made {
			all[name] = nil // a type may hold itself
			all[name] = all.object(t)
		}
		return jsonSchema{"$ref": "#/components/schemas/" + name}
	case reflect.Slice:
		return jsonSchema{"type": "array", "items": all.schemaOf(t.Elem())}
	case reflect.Map:
		return jsonSchema{"type": "object", "additionalProperties": all.schemaOf(t.Elem())}
	case reflect.Bool:
		return jsonSchema{"type": "boolean"}
	case reflect.Float64:
		return jsonSchema{"type": "number"}
	case reflect.String:
		return jsonSchema{"type": "string"}
	}
	return jsonSchema{"type": "integer"}
}

func (all schemas) object(t reflect.Type) jsonSchema {
	properties, required := map[string]jsonSchema{}, []string{}
	for _, f := range apiFields(t) {
		properties[f.name] = all.schemaOf(f.of)
		if !f.omit {
			required = append(required, f.name)
		}
	}
	return jsonSchema{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// schemaName is the name of a type, without what only this package means by it.
func schemaName(t reflect.Type) string {
	name := strings.TrimPrefix(t.Name(), "api")
	return strings.ToUpper(name[:1]) + name[1:]
}
