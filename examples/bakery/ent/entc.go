//go:build entc

package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"

	"github.com/gendurable/gendurable/entity/extension"
)

func main() {
	err := entc.Generate("../schema", &gen.Config{Target: ".", Package: "example.com/bakery/ent"}, entc.Extensions(extension.New()))
	if err != nil {
		log.Fatal(err)
	}
}
