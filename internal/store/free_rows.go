package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// RowsSilent is how long a session may be silent in the middle of one of the engine's transactions.
// The engine sends the statements of a transaction at once, and ends it within seconds.
const RowsSilent = 30 * time.Second

// freeRowsSQL ends sessions that have instances locked, and that have waited for the rest of their
// statements for $2.
//
// It is freeGatesSQL for the locks of rows: of a claim or a commit of which a part has reached the
// server, since its process was stopped or cut off. Nothing bounds how long such a session waits:
// see there. Claims, sweeps and reapers pass over what it has locked, so a claim's rows are late,
// and the row of a commit executes until the server finds out that the connection is dead.
//
// Only a pipeline that is not complete is active and waits for its client, or a COPY, which a host
// may run in its own transaction, however slowly: a session whose last statement names no table of
// this schema is left alone. It sees the sessions of this role only.
//
// $1 this schema as statements have it, with a dot $2 µs
var freeRowsSQL = named("free rows", `SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.state = 'active' AND a.wait_event = 'ClientRead'
  AND a.state_change < pg_catalog.clock_timestamp() - $2::bigint * interval '1 microsecond'
  AND strpos(a.query, $1::text) > 0 AND EXISTS (
    SELECT FROM pg_locks k WHERE k.pid = a.pid AND k.locktype = 'relation' AND k.relation = to_regclass($1::text || '{instances}')
      AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND k.mode IN ('RowShareLock', 'RowExclusiveLock'))`)

// FreeRows ends sessions of this role that have been silent for so long in the middle of one of the
// engine's transactions, and returns how many these were.
func (s *Store) FreeRows(ctx context.Context, silent time.Duration) (ended int, err error) {
	if err := s.one(ctx, fastLock, freeRowsSQL, readOne(&ended), pgx.Identifier{s.schema}.Sanitize()+".", micros(silent)); err != nil {
		return 0, fmt.Errorf("look for sessions that were cut off: %w", err)
	}
	return ended, nil
}
