// Package ent is the generated client of the engine's tables: typed queries over instances and
// signals.
//
//	stuck, err := eng.Ent().Instance.Query(). // of an engine.Engine
//		Where(instance.Machine("checkout"), instance.StatusEQ(fsm.StatusFailed)).
//		Order(ent.Desc(instance.FieldFinishedAt)).
//		Limit(50).
//		All(ctx)
//
// Everything but generate.go, entc.go, entql.tmpl, schemas.go and instance/json.go, which has
// predicates on documents, is generated from package schema by go generate, and never edited by
// hand. The client has no writes: they would bypass the fences.
package ent

//go:generate go run entc.go
