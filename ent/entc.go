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

// migrateApart generates package ent/migrate, which the client would import otherwise. It links all
// of Atlas with the drivers of its databases, and only internal/ddl needs it.
var migrateApart = gen.Feature{
	Name: "migrate/apart",
	GraphTemplates: []gen.GraphTemplate{
		{Name: "migrate", Format: "migrate/migrate.go"},
		{Name: "schema", Format: "migrate/schema.go"},
	},
}

func main() {
	sql, err := gen.NewStorage("sql")
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
	// The client then has no field Schema, which would migrate past the versioned migrations.
	storage := *sql
	storage.SchemaMode &^= gen.Migrate
	// A test's client that migrates by itself is nothing without that.
	gen.GraphTemplates = slices.DeleteFunc(gen.GraphTemplates, func(t gen.GraphTemplate) bool { return t.Name == "enttest" })
	err = entc.Generate("../schema", &gen.Config{
		Target:  ".",
		Package: "github.com/gendurable/gendurable/ent",
		Storage: &storage,
		Features: []gen.Feature{
			gen.FeatureSchemaConfig,       // tables qualified with the engine's schema
			gen.FeatureVersionedMigration, // the tables for internal/ddl
			migrateApart,
		},
	})
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}
