package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// reasonArgument is the one global option that tools have.
const reasonArgument = "reason"

// schema is a JSON Schema.
type schema map[string]any

// inputSchema describes the flags and arguments of a command.
func inputSchema(leaf *kong.Node, reads bool) schema {
	properties, required := map[string]any{}, []string{}
	for name, value := range parameters(leaf) {
		properties[name] = valueSchema(value)
		if value.Required {
			required = append(required, name)
		}
	}
	if !reads {
		properties[reasonArgument] = schema{"type": "string", "description": "Why, for the audit."}
	}
	slices.Sort(required)
	return schema{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// parameters returns the flags and arguments of a command by the names that they have in a tool.
func parameters(leaf *kong.Node) map[string]*kong.Value {
	out := map[string]*kong.Value{}
	for _, f := range leaf.Flags { // its own, not those of all commands
		if f.Name != "help" {
			out[toolName(f.Name)] = f.Value
		}
	}
	for _, argument := range leaf.Positional {
		out[toolName(argument.Name)] = argument
	}
	return out
}

// oneWord are the types of what one word of a command line holds. Ids are taken as strings, too,
// since few clients keep the digits of a large number.
var oneWord = []string{"string", "number"}

func valueSchema(v *kong.Value) schema {
	out := schema{"description": v.Help}
	if v.HasDefault && v.Default != "" && v.Default != "-1" {
		out["default"] = v.Default
	}
	names := slices.DeleteFunc(v.EnumSlice(), func(s string) bool { return s == "" })
	if list := values[v.Name]; list != nil && v.IsSlice() {
		names = list()
	}
	one := schema{"type": oneWord}
	switch kind := v.Target.Kind(); {
	case len(names) > 0:
		one = schema{"type": "string", "enum": names}
	case kind == reflect.Bool:
		one = schema{"type": "boolean"}
	case v.Target.Type() == reflect.TypeFor[time.Duration]():
		one = schema{"type": "string", "pattern": `^[-+.0-9a-zµ]+$`}
	case kind == reflect.Int, kind == reflect.Int64, v.Target.Type() == reflect.TypeFor[*int]():
		one = schema{"type": "integer"}
	}
	switch {
	case v.IsSlice():
		out["type"], out["items"] = "array", one
	case v.IsMap():
		out["type"], out["additionalProperties"] = "object", schema{"type": "string"}
	default:
		maps.Copy(out, one)
	}
	return out
}

// commandLine returns the command line of a call. Values cannot be taken for flags: values of
// flags stand behind an equals sign, and arguments behind "--".
func commandLine(leaf *kong.Node, reads bool, arguments json.RawMessage) (args []string, reason string, err error) {
	given := map[string]any{}
	if len(arguments) > 0 && string(arguments) != "null" {
		value, err := decoded(arguments)
		object, ok := value.(map[string]any)
		if err != nil || !ok {
			return nil, "", usagef("the arguments are no object")
		}
		given = object
	}
	known := parameters(leaf)
	args = strings.Fields(strings.TrimPrefix(leaf.FullPath(), "gendurable "))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value, of := given[name], known[name]
		switch {
		case value == nil:
			continue
		case name == reasonArgument && !reads:
			text, ok := value.(string)
			if !ok {
				return nil, "", usagef("%s: not a string", name)
			}
			reason = text
			continue
		case of == nil:
			return nil, "", usagef("no argument %.80q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case of.Flag == nil:
			continue
		}
		words, err := wordsOf(of, value)
		if err != nil {
			return nil, "", usagef("%s: %w", name, err)
		}
		for _, word := range words {
			args = append(args, "--"+of.Name+"="+word)
		}
	}
	args = append(args, "--")
	for _, argument := range leaf.Positional {
		value := given[toolName(argument.Name)]
		if value == nil {
			continue
		}
		words, err := wordsOf(argument, value)
		if err != nil {
			return nil, "", usagef("%s: %w", toolName(argument.Name), err)
		}
		args = append(args, words...)
	}
	return args, reason, nil
}

// wordsOf returns the words of a command line that stand for a value of JSON. A document may be
// given as JSON, too, where a command takes one as text.
func wordsOf(of *kong.Value, value any) (words []string, err error) {
	switch v := value.(type) {
	case []any:
		if !of.IsSlice() {
			break
		}
		for _, one := range v {
			word, err := wordOf(one)
			if err != nil {
				return nil, err
			}
			words = append(words, word)
		}
		return words, nil
	case map[string]any:
		if !of.IsMap() {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			word, err := wordOf(v[name])
			if err != nil {
				return nil, err
			}
			words = append(words, name+"="+word)
		}
		return words, nil
	default:
		word, err := wordOf(value)
		return []string{word}, err
	}
	if !slices.Contains([]string{"state", "patch", "payload"}, of.Name) {
		return nil, fmt.Errorf("neither a list nor an object, but %s", of.Help)
	}
	text, err := json.Marshal(value)
	return []string{string(text)}, err
}

func wordOf(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("a %T, want a string, a number or a boolean", value)
}

// decoded reads JSON, and keeps the digits of numbers.
func decoded(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}
