// Package schema declares the tables of the engine as ent schemas: [Instance] (table gen_durable) and [Signal] (table signals).
//
// The schemas serve two ends. From them ent generates the typed client in package ent, and package internal/ddl derives the DDL that
// the migrations must add up to (make drift compares them). What ent cannot say - the enum as a type of Postgres, identity columns that
// are generated ALWAYS, the generated guard column, a unique constraint - is added in internal/ddl. What no schema tool sees - the
// sequence of the claim tokens and the storage parameters - lives in the migrations alone.
//
// A change starts here, then: make generate, make migration NAME=what_it_does, make drift.
//
// Of the project it may import package fsm, and of that only ID, Status and Failure.
package schema
