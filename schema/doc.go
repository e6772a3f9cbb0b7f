// Package schema declares the tables of the engine as ent schemas: [Instance] (table gen_durable),
// [Signal] (signals), [Schedule] (schedules), [Worker] (workers), [PausedQueue] (paused_queues),
// [Gate] (gates), [GateKey] (gate_keys), [LostClaim] (lost_claims), [Transition] (history),
// [NodeEdge] (edges), [RecordedMachine] (recorded_machines), [Definition] (definitions),
// [KeptSignal] (kept_signals) and [Window] (windows).
//
// The schemas serve two purposes: ent generates the typed client in package ent from them, and
// package internal/ddl derives the DDL that the migrations must add up to (make drift compares the
// two). Some parts of the tables ent cannot declare. Their SQL stands in annotations, which
// internal/ddl applies: [TableSQL], [ColumnSQL] and [IndexSQL]. A [Reference] declares a pair of
// edges without a foreign key. The client has no entity of a schema that is [TableOnly].
//
// Tools of ent load the schemas without these annotations. Atlas, for instance, needs an empty
// database beside them:
//
//	atlas schema inspect --url ent://schema --dev-url "postgres://…/empty?search_path=public"
//
// Its loader does not see
//
//   - that the ids of gen_durable, signals and kept_signals are generated ALWAYS;
//   - the enum durable_status: for it, the column status is a varchar, correlation_scope a text[];
//   - the expressions of the columns correlation_guard and fingerprint, and the function of the
//     latter;
//   - the index gen_durable_retained, which is on an expression;
//   - that the unique index signals_target_id_dedup_key_key is a constraint;
//   - the primary key of edges, the partitioning of history, and the indexes of both. With ent
//     before 0.14, as in bin/atlas, these two tables get a column id. Later loaders leave them out.
//
// The migrations alone hold what no schema tool sees: the sequence of the claim tokens, the storage
// parameters, the other functions, the partitions, and the order of columns.
//
// Defaults are the database's (entsql.Default, entsql.DefaultExpr), never Go's: the client has no
// writes. For a default of Go's, the client would link the schemas, and the reflection in ent's
// descriptors would keep every exported method of a host's whole program in its binary.
//
// A host does not import the package: ent generates a client from the schemas of one package, so an
// edge into these tables would make them tables of the host's migrations. A host's schema points at
// instances by the mixin of package entity, and reads them by package ent.
//
// So a change starts here, and [All] lists each schema; then follow make generate, make migration
// NAME=what_it_does and make drift.
//
// Of the project the package may import package fsm, and of that only ID, Status and Failure.
//
// Comments cite docs/hazards.txt by number, as T99, and docs/specification.md by section, as spec
// §1.
package schema
