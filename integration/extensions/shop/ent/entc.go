//go:build entc

// Command entc generates this package.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"

	"github.com/gendurable/gendurable/entity/extension"
)

func main() {
	err := entc.Generate("../schema", &gen.Config{
		Target:  ".",
		Package: "github.com/gendurable/gendurable/integration/extensions/shop/ent",
	}, entc.Extensions(extension.New()))
	if err != nil {
		log.Fatalf("generate package ent: %v", err)
	}
}
