package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// Releases have numbers. One that writes what the workers of the release before cannot serve takes
// the next number: the column release of workers has it, and newer workers write no such thing
// while an older one is live or may come back. What that is stands here, as the release that first
// served it. Such a release has a migration, too, so that no older worker starts later: that finds
// that the schema is newer than it.
const (
	// firstRelease is the number of the first release. Every worker serves it, and no process asks.
	firstRelease = 1
	// thisRelease is the number of this program.
	thisRelease = 1
	// graphsSince is the first release whose workers end nodes of graphs as graphs need it.
	graphsSince = 1
)

// olderSQL looks for a worker of an older release that is live or may come back: a process that
// was stopped (SIGSTOP) reports itself no more, and once it goes on it claims and commits. Its
// sessions stay meanwhile, and so does its liveness lock. Its report is kept for presentKept. What
// the statement cannot see is a process that lost its sessions while it was stopped, has no
// liveness lock (LockByLease), or was stopped for longer.
//
// It looks at the server's locks only where such a report is there, and takes none: to others the
// worker would look alive. $1 schema $2 the release that is needed
var olderSQL = named("older worker", `SELECT w.host, w.pid, w.release FROM {s}.workers w WHERE w.release < $2::int AND (w.expires_at > (SELECT clock_timestamp())
  OR EXISTS (SELECT FROM pg_catalog.pg_locks k WHERE k.locktype = 'advisory' AND k.mode = 'ShareLock' AND k.granted AND k.objsubid = 1
    AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
    AND (k.classid::bigint << 32) + k.objid::bigint = `+livenessKey("$1::text", "w.id")+`)) LIMIT 1`)

// needs returns a *step.ReleaseError while there is a worker of a release before the one that is
// needed. It asks nothing for what every release serves.
func (s *Store) needs(send send, release int32) error {
	if release <= firstRelease {
		return nil
	}
	older := step.ReleaseError{Needed: release}
	if err := send(s.stmt(olderSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&older.Host, &older.PID, &older.Release}, func() error { return nil })
		return err
	}, s.schema, release)); err != nil {
		return fmt.Errorf("look for workers of an older release: %w", err)
	}
	if older.PID == 0 {
		return nil
	}
	return &older
}
