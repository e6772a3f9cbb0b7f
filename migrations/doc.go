// Package migrations is the only source of DDL: a directory of versioned Atlas migrations. The
// Atlas CLI applies it, or package migrate does in process. [Check] says whether a schema is
// current:
//
//	err := migrations.Check(ctx, pool, "") // a *migrations.SchemaError says what to run
//
// # Rules for a migration
//
// The first file is the base: all tables, each in one statement. Every file behind it applies to a
// live database that holds rows. A file is one transaction and starts with a lock_timeout, so that
// a lock that it does not get soon stops the migration and not the traffic. No file rewrites a
// table. A concurrent index build has a separate file, marked "-- atlas:txmode none". Such a file
// may be cut off anywhere. Package migrate then runs it again from its first statement, the CLI
// from the statement that failed, so each statement must bear both: testdata/toy has one. No file
// names a schema: the search_path decides. Each file has its inverse under down/. It must also
// apply where Citus distributes the schema: docs/citus.md says what is refused there.
//
// A schema that a version from before the first release has made has other migrations than these.
// It is refused ([StateUnreleased]).
//
// # Migrating a live database
//
// An engine works with exactly one version, and checks it when it starts. Engines that run during a
// migration go on: a migration only adds, and a later release drops what the release before still
// uses, unless CHANGELOG.md says to stop the engines. What an older worker that is live cannot
// serve, a newer one refuses meanwhile: see package store, release.go.
//
// Concurrent builds wait for every transaction that is older than they are. Package migrate lifts
// the role's statement_timeout and lock_timeout in its session; for the CLI, use a role that has
// none. After a migration that failed, whatever the reason, run it again.
//
// It imports nothing of the project, and nothing of Atlas: every host links it.
package migrations
