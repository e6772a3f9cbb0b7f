// Package fsm declares durable machines and signals and defines their steps. It does no I/O and
// imports only internal/step.
//
// A [Machine] is declared once, at package level. The declaration suffices to insert, spawn,
// address and wait for instances. [Machine.Define] or [Machine.Job] defines the behaviour apart
// from it, from functions that carry their dependencies; so two machines that spawn each other
// compile, and a client links no step's code.
//
// A step turns a [Visit] into an [Outcome]. The methods of the visit make outcomes, so a state or
// result of the wrong type does not compile. A fault that the compiler cannot see (an unknown step,
// a value that cannot be stored, a negative delay) is an [OutcomeError], which reaches the
// machine's handler like any error of the step. Nothing here panics for a user's mistake:
// engine.New reports the faults of declarations and definitions; the verb that uses a [Spec] or a
// [Message] reports its fault.
//
// Comments cite docs/hazards.md by row, as T1 to T99, and docs/specification.md by section, as spec
// §1.
package fsm
