package scaffold

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema/field"

	"github.com/gendurable/gendurable/entity"
)

// Read reads a column, named as Order.status, from an ent schema in a folder. It runs the go
// command, as ent's generator does, in the working directory, which has to be in the module of the
// schema. The client is the package above the schema unless it is named.
func Read(schema, column, client string) (*Column, error) {
	name, fieldName, found := strings.Cut(column, ".")
	if !found || name == "" || fieldName == "" {
		return nil, wrong("column", "%q is no field of a schema: write it as Order.status", column)
	}
	if there, err := os.Stat(schema); err != nil || !there.IsDir() {
		return nil, wrong("schema", "%q is no folder: name the folder of the ent schema, like ./ent/schema", schema)
	}
	if !filepath.IsAbs(schema) {
		schema = "./" + filepath.ToSlash(filepath.Clean(schema)) // else the go command takes it for an import path
	}
	spec, err := (&load.Config{Path: schema}).Load()
	if err != nil {
		return nil, fmt.Errorf("read the schema %s, in the module of this folder: %w", schema, err)
	}
	return columnOf(spec, name, fieldName, client)
}

func columnOf(spec *load.SchemaSpec, name, fieldName, client string) (*Column, error) {
	var names []string
	for _, s := range spec.Schemas {
		if names = append(names, s.Name); s.Name != name {
			continue
		}
		at := slices.IndexFunc(s.Fields, func(f *load.Field) bool { return f.Name == fieldName })
		if at < 0 {
			return nil, wrong("column", "schema %s has no field %q, only %s", name, fieldName, listed(namesOf(s.Fields)))
		}
		said, err := machineOf(s)
		if err != nil {
			return nil, err
		}
		c := &Column{Entity: name, Field: fieldName, Client: cmp.Or(client, path.Dir(spec.PkgPath)), Machine: said.Machine, ID: Type{Name: "int"}}
		if id := slices.IndexFunc(s.Fields, func(f *load.Field) bool { return f.Name == "id" }); id >= 0 {
			c.ID = typeOf(s.Fields[id].Info)
		}
		if err := c.fill(s.Fields[at], s.View); err != nil {
			return nil, err
		}
		if said.State != nil {
			return nil, wrong("column", "schema %s is driven by the declared machine %q already: use entity.DrivenByName for the new one, which the schema cannot import", name, said.Machine)
		}
		return c, nil
	}
	return nil, wrong("column", "there is no schema %q, only %s", name, listed(names))
}

// fill takes the values from the field, or refuses it.
func (c *Column) fill(f *load.Field, view bool) error {
	name := c.Entity + "." + c.Field
	switch {
	case view:
		return wrong("column", "%s is a view, and no step can write its status", c.Entity)
	case f.Info.Type != field.TypeEnum:
		return wrong("column", "%s is of type %s: make it a field.Enum with its values; in Postgres the column of a field.String stays as it is", name, f.Info.Type)
	case f.Info.RType != nil && f.Info.RType.Kind != reflect.String:
		return wrong("column", "%s has the Go type %s, whose values are no strings: give it one that is", name, f.Info)
	case f.Immutable:
		return wrong("column", "%s is immutable, and each step writes it: take Immutable away", name)
	case f.Nillable:
		return wrong("column", "%s is nillable, so its Go field is a pointer: take Nillable away", name)
	case f.Optional:
		return wrong("column", "%s is optional, and a row without a status has no step: give each row one, and take Optional away", name)
	}
	for _, e := range f.Enums {
		c.Values = append(c.Values, e.V)
	}
	c.Default, _ = f.DefaultValue.(string)
	if f.Info.RType != nil {
		c.Type = typeOf(f.Info)
	}
	return nil
}

func typeOf(i *field.TypeInfo) Type { return Type{Name: i.String(), Path: i.PkgPath} }

// machineOf returns what the schema's mixin says of its machine.
func machineOf(s *load.Schema) (said entity.Annotation, err error) {
	text, err := json.Marshal(s.Annotations[entity.AnnotationName]) // ent has decoded it into a map
	if err != nil {
		return said, fmt.Errorf("annotation %s: %w", entity.AnnotationName, err)
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return said, fmt.Errorf("annotation %s: %w", entity.AnnotationName, err)
	}
	return said, nil
}

func namesOf(fields []*load.Field) (names []string) {
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}
