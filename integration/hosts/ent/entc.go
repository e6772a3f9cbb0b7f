//go:build entc

// Command entc generates this package. The feature sql/execquery lets the engine speak through the
// client's transactions.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
)

func main() {
	err := entc.Generate("../schema", &gen.Config{
		Target:   ".",
		Package:  "github.com/gendurable/gendurable/integration/hosts/ent",
		Features: []gen.Feature{gen.FeatureExecQuery},
	})
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}
