// Package migrate applies the migrations in process:
//
//	done, err := (migrate.Migrator{Pool: pool}).Up(ctx)
//
// The Migrator and the Atlas CLI agree on everything that both touch: the directory and its
// checksums, the revision table in its format, the lock, and how to go on after the other one was
// interrupted. A host may use either, or both in turns. Tables and revisions live in one Postgres
// schema of the engine's own, never in the host's.
//
// The engine does not import it: a host that migrates by other means does not link Atlas. Of the
// project it imports package migrations.
package migrate
