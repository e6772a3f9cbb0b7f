//go:build entc

// Command entc generates this package from package schema.
//
// The build tag is not the usual "ignore": go mod tidy looks behind every tag but that one, so it
// keeps what the generator needs in go.sum, and generating takes no network.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"

	"github.com/gendurable/gendurable/schema"
)

func main() {
	sql, err := gen.NewStorage("sql")
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
	// The client then has no field Schema, which would migrate past the versioned migrations.
	storage := *sql
	storage.SchemaMode &^= gen.Migrate
	err = entc.Generate("../schema", &gen.Config{
		Target:  ".",
		Package: "github.com/gendurable/gendurable/ent",
		Storage: &storage,
		Features: []gen.Feature{
			gen.FeatureSchemaConfig, // tables qualified with the engine's schema
			gen.FeatureIntercept, gen.FeaturePrivacy, gen.FeatureEntQL,
		},
		Templates: []*gen.Template{gen.MustParse(gen.NewTemplate("entql").ParseFiles("entql.tmpl"))},
		Hooks:     []gen.Hook{inTwoPasses},
	})
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}

// inTwoPasses generates the tables, then the client, from the loaded schemas. It marks them in
// between, since ent describes no columns of a view, and generates no writes for one:
//
//   - to package ent/migrate, which internal/ddl reads, each schema is a table, also one without an
//     id;
//   - to the client each schema is a view, so that a write through it does not compile. It also has
//     the edges without a foreign key, and leaves out schemas that are TableOnly.
//
// Schemas cannot all be declared as views: ent would then load them without their ids and edges.
func inTwoPasses(next gen.Generator) gen.Generator {
	return gen.GenerateFunc(func(tables *gen.Graph) error {
		schemas, err := ofClient(tables.Schemas)
		if err != nil {
			return err
		}
		client, err := gen.NewGraph(tables.Config, schemas...)
		if err != nil {
			return err
		}
		ofTypes, ofGraph := gen.Templates, gen.GraphTemplates

		mark(tables, false)
		gen.Templates, gen.GraphTemplates = nil, []gen.GraphTemplate{{Name: "schema", Format: "migrate/schema.go"}}
		if err := next.Generate(tables); err != nil {
			return err
		}
		for _, n := range tables.Nodes { // this pass made an empty folder for each, also for those that the client leaves out
			_ = os.Remove(filepath.Join(tables.Target, n.PackageDir()))
		}

		mark(client, true)
		gen.Templates, gen.GraphTemplates = ofTypes, slices.DeleteFunc(ofGraph, idle)
		return next.Generate(client)
	})
}

func mark(g *gen.Graph, views bool) {
	for _, s := range g.Schemas {
		s.View = views
	}
}

// ofClient returns copies of the client's schemas, with the edges that they declare by references.
func ofClient(schemas []*load.Schema) ([]*load.Schema, error) {
	var copies []*load.Schema
	named := map[string]*load.Schema{}
	for _, s := range schemas {
		if _, found := s.Annotations[schema.TableOnly{}.Name()]; found {
			continue
		}
		c := *s
		c.Edges = slices.Clone(s.Edges)
		copies, named[s.Name] = append(copies, &c), &c
	}
	for _, s := range copies {
		annotation, found := s.Annotations[schema.Reference{}.Name()]
		if !found {
			continue
		}
		var to schema.Reference
		text, err := json.Marshal(annotation)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &to); err != nil {
			return nil, err
		}
		referenced := named[to.Type]
		if referenced == nil {
			return nil, fmt.Errorf("%s has a reference to %q, which is no schema", s.Name, to.Type)
		}
		s.Edges = slices.Insert(s.Edges, 0, &load.Edge{Name: to.Edge, Type: to.Type, Field: to.Field, RefName: to.Ref, Unique: true, Inverse: true})
		referenced.Edges = slices.Insert(referenced.Edges, 0, &load.Edge{Name: to.Ref, Type: s.Name})
	}
	return copies, nil
}

// idle reports whether a client that only reads has no use for the file of a template: adapters for
// hooks of mutations, defaults of Go, a test's client that migrates.
func idle(t gen.GraphTemplate) bool {
	return slices.Contains([]string{"hook", "runtime/ent", "runtime/pkg", "enttest"}, t.Name)
}
