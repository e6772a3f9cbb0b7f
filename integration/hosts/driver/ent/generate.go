// Package ent is the client of package model, with the features that reach into the driver.
package ent

//go:generate go run entc.go
