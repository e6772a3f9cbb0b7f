// Package hosts tests the engine as a host uses it that has its own ent client and database/sql
// over lib/pq: verbs in the host's transactions, and entities that point at their instances. It is
// a module of its own, so that the project needs nothing of that.
package hosts
