// Package ent is the generated client of the engine's tables: typed queries over instances and
// signals.
//
// Everything but generate.go and entc.go is generated from package schema by go generate, and never
// edited by hand. Mutations through this client would bypass the fences; the engine hands it out
// for reading.
package ent

//go:generate go run entc.go
