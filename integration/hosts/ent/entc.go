//go:build entc

// Command entc generates this package, as a host does. The feature sql/execquery is for WithSQL of
// an ent transaction, sql/upsert for a test; the extension needs none.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"

	"github.com/gendurable/gendurable/entity/extension"
)

func main() {
	err := entc.Generate("../schema", &gen.Config{
		Target:   ".",
		Package:  "github.com/gendurable/gendurable/integration/hosts/ent",
		Features: []gen.Feature{gen.FeatureExecQuery, gen.FeatureUpsert},
	}, entc.Extensions(extension.New()))
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}
