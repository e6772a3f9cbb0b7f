//go:build entc

// Command entc generates this package from package schema.
//
// The build tag is not the usual "ignore": go mod tidy looks behind every tag but that one, so it
// keeps what the generator needs in go.sum, and generating takes no network.
package main

import (
	"log"
	"slices"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
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
		Target:   ".",
		Package:  "github.com/gendurable/gendurable/ent",
		Storage:  &storage,
		Features: []gen.Feature{gen.FeatureSchemaConfig}, // tables qualified with the engine's schema
		Hooks:    []gen.Hook{inTwoPasses},
	})
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}

// inTwoPasses generates the tables, then the client, from one loaded graph. It marks the schemas in
// between, since ent describes no columns of a view, and generates no writes for one:
//
//   - to package ent/migrate, which internal/ddl reads, each schema is a table, also one without an
//     id;
//   - to the client each schema is a view, so that a write through it does not compile.
//
// Schemas cannot all be declared as views: ent would then load them without their ids and edges.
func inTwoPasses(next gen.Generator) gen.Generator {
	return gen.GenerateFunc(func(g *gen.Graph) error {
		ofTypes, ofGraph := gen.Templates, gen.GraphTemplates

		mark(g, false)
		gen.Templates, gen.GraphTemplates = nil, []gen.GraphTemplate{{Name: "schema", Format: "migrate/schema.go"}}
		if err := next.Generate(g); err != nil {
			return err
		}

		mark(g, true)
		gen.Templates, gen.GraphTemplates = ofTypes, slices.DeleteFunc(ofGraph, idle)
		return next.Generate(g)
	})
}

func mark(g *gen.Graph, views bool) {
	for _, s := range g.Schemas {
		s.View = views
	}
}

// idle reports whether a client that only reads has no use for the file of a template: adapters for
// hooks of mutations, defaults of Go, a test's client that migrates.
func idle(t gen.GraphTemplate) bool {
	return slices.Contains([]string{"hook", "runtime/ent", "runtime/pkg", "enttest"}, t.Name)
}
