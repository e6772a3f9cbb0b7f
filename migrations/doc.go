// Package migrations is the only source of DDL: a directory of versioned Atlas migrations, and a
// [Migrator] that applies it in process.
//
// The Atlas CLI and the Migrator agree on everything that both touch: the directory and its
// checksums, the revision table in its format, the lock, and how to go on where the other was
// interrupted. A host may use either, or both in turns. Tables and revisions live in one Postgres
// schema of the engine's own, never in the host's.
//
// # Rules for a migration
//
// Every file applies to a live database that holds rows. A file is one transaction and starts with
// a lock_timeout, so that a lock it cannot have soon stops the migration and not the traffic. No
// file rewrites a table. A concurrent index build has a file of its own, marked "-- atlas:txmode
// none"; such files may be cut off anywhere and are then run again from their first statement (by
// the CLI: from the statement that failed), so each must bear both. No file names a schema: the
// search_path decides. Each has its inverse under down/.
//
// # Migrating a live database
//
// An engine works with exactly one version and says so when it starts. The engines that run go on:
// a migration only adds, and what the release before still uses goes with the release after, unless
// CHANGELOG.md says to stop them. Writers of version 1, the base, have to stop before: from the
// checks on, the database refuses what they write at the end of an instance.
//
// The backfill commits every thousand rows and waits for rows that others hold. Concurrent builds
// wait for every transaction that is older than they are. The Migrator frees its session of the
// role's statement_timeout and lock_timeout; for the CLI, take a role without. After a migration
// that failed, whatever the reason: run it again.
//
// It imports nothing of the project.
package migrations
