package entity

import (
	"fmt"
	"go/token"
	"reflect"
	"strconv"
	"strings"
)

// Type is a type of a machine as generated code names it.
type Type struct {
	// Name is the type in Go, where a package stands by its quoted path:
	//
	//	map[string]"example.com/shop".Line
	Name string `json:"name,omitempty"`
	// Imports are the paths of the packages in Name.
	Imports []string `json:"imports,omitempty"`
	// Fault says why no other package can name the type; "": it can.
	Fault string `json:"fault,omitempty"`
}

// typeOf describes a type.
func typeOf(t reflect.Type) *Type {
	out := &Type{}
	name, err := out.named(t)
	if err != nil {
		return &Type{Fault: err.Error()}
	}
	out.Name = name
	return out
}

// named returns a type's name, and notes what it imports.
func (o *Type) named(t reflect.Type) (string, error) {
	if t.Name() != "" {
		return o.declared(t)
	}
	of := func(prefix string, elem reflect.Type) (string, error) {
		name, err := o.named(elem)
		return prefix + name, err
	}
	switch t.Kind() {
	case reflect.Pointer:
		return of("*", t.Elem())
	case reflect.Slice:
		return of("[]", t.Elem())
	case reflect.Array:
		return of("["+strconv.Itoa(t.Len())+"]", t.Elem())
	case reflect.Map:
		key, err := o.named(t.Key())
		if err != nil {
			return "", err
		}
		return of("map["+key+"]", t.Elem())
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return "any", nil
		}
	}
	return "", fmt.Errorf("the type %v has no name: declare it as an exported type", t)
}

// declared is named for a declared or predeclared type.
func (o *Type) declared(t reflect.Type) (string, error) {
	path := t.PkgPath()
	switch {
	case strings.Contains(t.Name(), "["):
		return "", fmt.Errorf("the type %v is an instance of a generic one: declare an exported type of it, as type Carts Page[Cart]", t)
	case path == "":
		return t.Name(), nil
	case path == "main":
		return "", fmt.Errorf("the type %v is in a package main, which no other package imports: move it to another package", t)
	case !token.IsExported(t.Name()):
		return "", fmt.Errorf("the type %v is not exported: give it a name that begins with a capital", t)
	}
	o.Imports = append(o.Imports, path)
	return strconv.Quote(path) + "." + t.Name(), nil
}
