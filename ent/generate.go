// Package ent is the generated client of the engine's tables: typed queries over instances and
// signals.
//
// Everything but generate.go, entc.go, schemas.go and instance/json.go, which has predicates on
// documents, is generated from package schema by go generate, and never edited by hand. The client
// has no writes: they would bypass the fences.
package ent

//go:generate go run entc.go
