//go:build gqlgen

// Command gqlgen generates the server of the schema in shop.graphql.
package main

import (
	"log"

	"github.com/99designs/gqlgen/api"
	"github.com/99designs/gqlgen/codegen/config"
)

func main() {
	c, err := config.LoadConfigFromDefaultLocations()
	if err != nil {
		log.Fatalf("read gqlgen.yml: %v", err)
	}
	if err := api.Generate(c); err != nil {
		log.Fatalf("generate package shop: %v", err)
	}
}
