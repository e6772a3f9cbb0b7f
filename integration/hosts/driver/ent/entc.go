//go:build entc

// Command entc generates this package.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
)

func main() {
	err := entc.Generate("../model", &gen.Config{
		Target:   ".",
		Package:  "github.com/gendurable/gendurable/integration/hosts/driver/ent",
		Features: []gen.Feature{gen.FeatureExecQuery, gen.FeatureUpsert, gen.FeatureLock, gen.FeatureModifier},
	})
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}
