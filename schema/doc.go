// Package schema declares the tables of the engine as ent schemas: [Instance] (table gen_durable),
// [Signal] (signals), [Schedule] (schedules), [Worker] (workers), [PausedQueue] (paused_queues),
// [Gate] (gates), [GateKey] (gate_keys), [LostClaim] (lost_claims), [Transition] (history),
// [NodeEdge] (edges), [RecordedMachine] (recorded_machines), [Definition] (definitions),
// [KeptSignal] (kept_signals) and [Window] (windows).
//
// The schemas serve two purposes: ent generates the typed client in package ent from them, and
// package internal/ddl derives the DDL that the migrations must add up to (make drift compares the
// two). Package internal/ddl adds what ent cannot express: the enum as a type of Postgres, identity
// columns that are generated ALWAYS, the generated guard column, a unique constraint, the key of
// edges, which is two columns, the partitioning of history. The migrations alone hold what no
// schema tool sees: the sequence of the claim tokens, the storage parameters, functions and
// partitions.
//
// Defaults are the database's (entsql.Default, entsql.DefaultExpr), never Go's: the client has no
// writes. For a default of Go's, the client would link the schemas, and the reflection in ent's
// descriptors would keep every exported method of a host's whole program in its binary.
//
// A host does not import the package: ent generates a client from the schemas of one package, so an
// edge into these tables would make them tables of the host's migrations. A host's schema points at
// instances by the mixin of package entity, and reads them by package ent.
//
// So a change starts here; then follow make generate, make migration NAME=what_it_does and make
// drift.
//
// Of the project the package may import package fsm, and of that only ID, Status and Failure.
//
// Comments cite docs/hazards.txt by number, as T99, and docs/specification.md by section, as spec
// §1.
package schema
