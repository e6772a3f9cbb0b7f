// Package fsm declares durable machines and signals and defines their steps. It does no I/O and imports only internal/step.
//
// A [Machine] is declared once, at package level: it is all that anyone needs to insert, spawn, address or wait for an instance. Its
// behaviour is defined apart from that, by [Machine.Define] or [Machine.Job], from functions that carry their dependencies; so two
// machines that spawn each other compile, and a client links no step's code.
//
// A step turns a [Visit] into an [Outcome]: the visit's methods make them, so that a wrong state or result does not compile. What
// cannot be known at compile time (an unknown step, a value that cannot be stored, a negative delay) is an [OutcomeError], which
// reaches the machine's handler as any error of the step does. Nothing here panics for a user's mistake: faults of a declaration or
// a definition are collected for engine.New, those of a [Spec] or a [Message] show where it is used.
package fsm
