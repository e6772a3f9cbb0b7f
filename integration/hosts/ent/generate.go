// Package ent is the host's own client, generated from package schema: nothing in it knows the
// engine.
package ent

//go:generate go run entc.go
