// Package ent is the client of the bakery's tables, which go generate writes.
package ent

//go:generate go run entc.go
