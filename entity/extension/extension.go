// Package extension is the extension of ent's generator for schemas that say, by the mixin of
// package entity, that a machine drives their entities. Only the program that generates a host's
// client imports it:
//
//	err := entc.Generate("../schema", &gen.Config{Target: ".", Package: "example.com/shop/ent"},
//		entc.Extensions(extension.New()))
//
// It changes no other type of the host's client, no table but by the mixin's column, and needs none
// of ent's features.
package extension

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"

	"github.com/gendurable/gendurable/entity"
)

//go:embed *.tmpl
var files embed.FS

// Extension generates the link between entities and their instances.
type Extension struct{ entc.DefaultExtension }

var _ entc.Extension = Extension{}

// New returns the extension.
func New() Extension { return Extension{} }

// Hooks returns the check of what the schemas say. The generator writes nothing if it fails.
func (Extension) Hooks() []gen.Hook {
	return []gen.Hook{func(next gen.Generator) gen.Generator {
		return gen.GenerateFunc(func(g *gen.Graph) error {
			for _, n := range g.Nodes {
				if err := errors.Join(named(n), check(n)); err != nil {
					return fmt.Errorf("schema %s: %w", n.Name, err)
				}
			}
			if err := errors.Join(distinct(g), acyclic(g)); err != nil {
				return err
			}
			if err := next.Generate(g); err != nil {
				return err
			}
			for _, n := range g.Nodes {
				if err := guard(n); err != nil {
					return fmt.Errorf("schema %s: %w", n.Name, err)
				}
			}
			return nil
		})
	}}
}

// Templates returns the templates. One is the file gendurable_entity.go. Each of the others adds to
// a file that ent generates, by a name that ent offers for that.
func (Extension) Templates() []*gen.Template {
	t := gen.NewTemplate("extension").Funcs(map[string]any{
		"driven": driven, "registering": registering, "watched": watched, "aliases": aliases, "goType": goType,
		"members": members, "constructor": constructor,
	})
	return []*gen.Template{gen.MustParse(t.ParseFS(files, "*.tmpl"))}
}

// driven returns what a schema says, nil where no machine drives its entities.
func driven(annotations gen.Annotations) (*entity.Annotation, error) {
	said, ok := annotations[entity.AnnotationName]
	if !ok {
		return nil, nil
	}
	text, err := json.Marshal(said) // ent has decoded it into a map
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", entity.AnnotationName, err)
	}
	out := &entity.Annotation{}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", entity.AnnotationName, err)
	}
	return out, nil
}

// registering returns the types for which the program registers a function, by OnCreate or
// OnUpdate.
func registering(nodes []*gen.Type) (found []*gen.Type, err error) {
	for _, n := range nodes {
		is, err := driven(n.Annotations)
		if err != nil {
			return nil, err
		}
		if is != nil && (is.OnCreate || len(is.OnUpdate) > 0) {
			found = append(found, n)
		}
	}
	return found, nil
}

// watched returns the fields of a type whose update signals.
func watched(n *gen.Type) (found []*gen.Field, err error) {
	is, err := driven(n.Annotations)
	if err != nil || is == nil {
		return nil, err
	}
	for _, f := range n.Fields {
		if slices.Contains(is.OnUpdate, f.Name) {
			found = append(found, f)
		}
	}
	return found, nil
}

// taken are the names that the templates use in the type that they generate into, and mutated the
// one in its mutation, where ent has a schema's names as they are.
var taken = []string{"Instance", "InstanceOrErr", "QueryInstance", "WhyInstance", "InstanceField"}

// typedTaken are the names that they also use if they know the types of the machine.
var typedTaken = []string{"InstanceState", "InstanceResult", "InstanceStateFields"}

const mutated = "gendurable"

// imported are the packages that the templates import into the files of driven types, by the names
// that they have there.
var imported = []string{"durable", "durableent", "durableinstance", "durablepredicate", "durablefsm", "durablestate", "slices"}

// named refuses names of types that collide with what the templates add to the client.
func named(n *gen.Type) error {
	switch {
	case n.PackageDir() == "gendurable_entity":
		return errors.New("the extension of gendurable generates the file gendurable_entity.go, which this name also makes: give the type another name")
	case slices.Contains([]string{"Durable", "Within", "InTx", "CommitBy"}, n.Name):
		return fmt.Errorf("the client, or a transaction of it, has the method %s, of gendurable's extension: give the type another name", n.Name)
	case slices.Contains(imported, n.Package()):
		return fmt.Errorf("what gendurable's extension generates imports another package as %s, the name of this type's package: give the type another name", n.Package())
	}
	return nil
}

func check(n *gen.Type) error {
	is, err := driven(n.Annotations)
	if err != nil || is == nil {
		return err
	}
	if is.Machine == "" {
		return fmt.Errorf("entity.DrivenBy: the machine is nil, or has no name")
	}
	if err := nameable(is, n.Config.Package); err != nil {
		return err
	}
	if !slices.Contains([]entity.Deletion{entity.Refuse, entity.Cancel, entity.Leave}, is.OnDelete) {
		return fmt.Errorf("entity.OnDelete: %q is neither Refuse nor Cancel nor Leave", is.OnDelete)
	}
	if n.IsView() || !n.HasOneFieldID() {
		return fmt.Errorf("entity.DrivenBy: its entities need an id of one field")
	}
	if !slices.ContainsFunc(n.Fields, func(f *gen.Field) bool { return f.Name == entity.Field }) {
		return fmt.Errorf("it has the annotation but not the field %s: use the mixin entity.DrivenBy", entity.Field)
	}
	for i, name := range is.OnUpdate {
		at := slices.IndexFunc(n.Fields, func(f *gen.Field) bool { return f.Name == name })
		switch {
		case name == entity.Field:
			return fmt.Errorf("entity.OnUpdate: %s points at the instance, so no update of it is a signal: name other fields", name)
		case at < 0:
			return fmt.Errorf("entity.OnUpdate: the schema has no field %q: name fields as the schema does", name)
		case n.Fields[at].Immutable:
			return fmt.Errorf("entity.OnUpdate: field %s is immutable, so no update sets it", name)
		case slices.Contains(is.OnUpdate[:i], name):
			return fmt.Errorf("entity.OnUpdate: field %s is named twice", name)
		}
	}
	if is.UpdateNeedsLive && len(is.OnUpdate) == 0 {
		return fmt.Errorf("entity.UpdateNeedsLive: it needs OnUpdate, which names the fields")
	}
	for _, f := range n.Fields {
		if slices.Contains(taken, f.StructField()) || is.State != nil && slices.Contains(typedTaken, f.StructField()) || f.BuilderField() == mutated {
			return fmt.Errorf("field %s has a name that entity.DrivenBy needs: give it another one", f.Name)
		}
	}
	for _, e := range n.Edges {
		if slices.Contains(taken, e.StructField()) || e.BuilderField() == mutated {
			return fmt.Errorf("edge %s has a name that entity.DrivenBy needs", e.Name)
		}
	}
	return nil
}
