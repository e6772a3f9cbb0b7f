// Package interleave proves the engine's statements under every order in which sessions can run
// them. It holds tests only.
//
// Two sessions (in a sample, three) run verbs of the real store, each over a separate connection. A
// wrapper around the network connection (gate) reads the Postgres protocol and holds the statements
// of a pipeline back one by one, and the schedule decides whose turn it is. So the statements,
// their transactions, their arguments and the Go code around them are production's, and production
// knows nothing of the harness. pg_blocking_pids reports who waits for whom.
//
// A schedule runs in a small world (world): a handful of rows set up by SQL, about a subject that
// all verbs of the world touch. Then every session does what a worker would do next: outcomes that
// were left out go to the slow lane, and missed promotions are repeated. Finally the invariants of
// the specification are checked on the tables and on a history that triggers have kept:
// invariants.sql has a view per invariant, which must be empty.
//
// In comments, § followed by a number is a section of docs/specification.md, and T followed by a
// number is a hazard of docs/hazards.txt. The README lists the worlds, the verbs, and how to
// rerun one schedule.
package interleave
