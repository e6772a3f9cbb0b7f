// Package query reads what operators and hosts ask for through ent's typed client: instances, plans
// of bulk verbs, schedules and paused queues.
//
// Each query goes out between the settings of the hot statements, in one round trip ([New]), so it
// has the same limits and the same plans. Where ent has no word for a part of a query (the bounded
// page), a predicate writes that part; everything else is generated.
//
// The package may import ent, fsm and internal/store. docs/decisions.md says which reads stay in
// internal/store, and why.
package query
