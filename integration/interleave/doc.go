// Package interleave proves the engine's statements under every order in which sessions can run them. It holds tests only.
//
// Two sessions (sampled: three) run verbs of the real store, each over a connection of its own. A wrapper around the network
// connection (gate) reads the Postgres protocol and holds the statements of a pipeline back one by one; the schedule says whose turn it
// is. So the statements, their transactions, their arguments and the Go code around them are those of production, and production knows
// nothing of the harness. Who waits for whom is asked of pg_blocking_pids.
//
// A schedule runs in a small world (world): a handful of rows set up by SQL, about a subject that all verbs of the world touch. Then every
// session does what a worker would do next: outcomes left out go to the slow lane, missed promotions are repeated. At last the
// invariants of the specification are asked of the tables and of a history that triggers have kept: invariants.sql, each a view that
// must be empty.
//
// The README has the table of pairs, the mutants, and how to rerun one schedule.
package interleave
