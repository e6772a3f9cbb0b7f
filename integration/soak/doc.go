// Package soak runs the engine under faults and checks its history.
//
// Ten and more worker processes and two clients work on all primitives, through a proxy of the soak's own, on a throwaway Postgres with
// fsync on; an operator cancels, retries, pauses and reschedules what it meets, and schedules fire each second or two.
// Meanwhile processes are killed and stopped, connections are cut and swallowed, the server crashes, refuses to write, ends sessions. Every
// process appends what it does to one log outside of the database, with one write each; triggers record every change of
// the engine's tables in the order in which it took effect. When all has healed and every instance has ended, both are loaded side by
// side, and each view of checks.sql names what must not be: it must return no row.
//
// It uses the engine as a host does. [Run] is the soak; package cmd below is its program, which plays all the processes.
package soak
