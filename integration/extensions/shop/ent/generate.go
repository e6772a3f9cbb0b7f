// Package ent is the host's own client, generated from package schema.
package ent

//go:generate go run entc.go
