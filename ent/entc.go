//go:build entc

// Command entc generates this package from package schema.
//
// The build tag is not the usual "ignore": go mod tidy looks behind every tag but that one, so it
// keeps what the generator needs in go.sum, and generating takes no network.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
)

func main() {
	err := entc.Generate("../schema", &gen.Config{
		Target:  ".",
		Package: "github.com/gendurable/gendurable/ent",
		Features: []gen.Feature{
			gen.FeatureSchemaConfig,       // tables qualified with the engine's schema
			gen.FeatureVersionedMigration, // the tables for internal/ddl
		},
	})
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}
