// Package soak runs the engine under faults and checks its history.
//
// Twelve worker processes and two clients work on all primitives, through a proxy of the soak's
// own, on a throwaway Postgres with fsync on. An operator cancels, retries, pauses and reschedules
// instances, and schedules fire each second or two. Meanwhile processes are killed and stopped,
// connections are cut and swallowed, and the server crashes, refuses to write, and ends sessions.
// Every process appends its events to one log outside of the database, with one write each;
// triggers record every change of the engine's tables in the order in which it took effect. When
// all faults have healed and every instance has ended, both records are loaded side by side. Each
// view of checks.sql names something that must not happen: it must return no row.
//
// Besides, clients call about a few purses at a time, and record what they were told, for module
// integration/clients, which looks for an order that explains it.
//
// The soak uses the engine as a host does. [Run] runs it; package cmd below is its program, which
// plays all the processes.
package soak
