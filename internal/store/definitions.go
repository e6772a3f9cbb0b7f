package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Definition is what a program declares of one version of a machine: its graph, as JSON.
type Definition struct {
	Machine string
	Version int
	Graph   string
}

// storeDefinitionsSQL stores the definitions that a program declares. Of two programs that declare
// the same version of a machine otherwise, the one that started last is right.
//
// The statement neither writes nor locks a row that says the same already, so that a usual start
// writes nothing. It passes over a locked row: the holder may be another program, and a drawing is
// not worth a start that waits. Lock and UPDATE are one statement, and join by ctid: see
// commitSQL. Where another process has changed the row after the look, the row keeps what that one
// has declared, which started as late. New rows are inserted in order, so that two processes that
// start at once do not deadlock; the later one waits for the other's COMMIT, at most for the
// lock_timeout.
//
// $1 machines $2 versions $3 graphs
var storeDefinitionsSQL = named("store definitions", `WITH u AS MATERIALIZED (
  SELECT t.machine || '/' || t.version::text AS definition, t.machine, t.version, t.graph::jsonb AS graph
  FROM (SELECT unnest($1::text[]) AS machine, unnest($2::int[]) AS version, unnest($3::text[]) AS graph) t),
changed AS (
  UPDATE {s}.definitions d SET graph = u.graph, updated_at = clock_timestamp()
  FROM u CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.definitions x
    WHERE x.definition = u.definition AND x.graph <> u.graph FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE d.ctid = l.tid),
missing AS (
  INSERT INTO {s}.definitions (definition, machine, version, graph)
  SELECT u.definition, u.machine, u.version, u.graph FROM u
  WHERE NOT EXISTS (SELECT FROM {s}.definitions x WHERE x.definition = u.definition)
  ORDER BY u.definition COLLATE "C"
  ON CONFLICT (definition) DO NOTHING)
SELECT r.machine FROM {s}.recorded_machines r`)

// StoreDefinitions stores what a program declares, in one round trip. It returns the machines that
// are noted as recorded, of all programs: see SetRecorded.
func (s *Store) StoreDefinitions(ctx context.Context, list []Definition) (recorded []string, err error) {
	machines, versions, graphs := make([]string, len(list)), make([]int32, len(list)), make([]string, len(list))
	for i, d := range list {
		machines[i], versions[i], graphs[i] = d.Machine, int32(d.Version), d.Graph //nolint:gosec // a definition's version is checked
	}
	err = s.one(ctx, fastLock, storeDefinitionsSQL, func(rows pgx.Rows) error {
		recorded, err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil {
			s.recording.Store(len(recorded) > 0)
		}
		return err
	}, machines, versions, graphs)
	if err != nil {
		return nil, fmt.Errorf("store %d definitions: %w", len(list), err)
	}
	return recorded, nil
}
