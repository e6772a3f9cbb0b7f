// Package hosts tests the engine in a host that has its own ent client and database/sql over
// lib/pq: verbs in the host's transactions, and entities that point at their instances. It is a
// separate module, so that the project needs none of these packages.
package hosts
