package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Relative is an instance as its relatives see it.
type Relative struct {
	ID        int64  `json:"id"`
	Machine   string `json:"machine"`
	Version   int    `json:"version"`
	Step      string `json:"step"`
	Status    string `json:"status"`
	Paused    bool   `json:"paused"`
	Queue     string `json:"queue"`
	Key       string `json:"key"`
	LastError string `json:"error"` // its first 200 characters
	Round     int64  `json:"round"` // of a child: the visit that joins it
}

// Inboxed is a signal that is not consumed.
type Inboxed struct {
	ID         int64           `json:"id"`
	Name       string          `json:"name"`
	DedupKey   string          `json:"dedup_key"`
	InsertedAt time.Time       `json:"inserted_at"`
	Bytes      int64           `json:"bytes"`
	Payload    json.RawMessage `json:"payload"` // nil: all before it had no room
}

// RelationsBounds bound what Relations reads.
type RelationsBounds struct {
	Count     int // children that are counted
	Rounds    int // of which children are listed, the newest
	Children  int // of a round
	Ancestors int
	Inbox     int // signals
	Bytes     int // of all payloads together
}

// Relations are an instance's ancestors, children and signals.
type Relations struct {
	Ancestors []Relative // the parent first
	Counts    []ChildCount
	Children  []Relative // the first of each round, the newest round first
	Inbox     []Inboxed
}

// relationsSQL reads what belongs to an instance: along gen_durable_parent and signals_target, and
// by ids. A payload is read if it and those before it fit into $7 bytes.
//
// $1 id $2 children to count $3 rounds $4 children of a round $5 ancestors $6 signals $7 bytes
var relationsSQL = named("relations", `WITH RECURSIVE counted AS MATERIALIZED (
  SELECT g.id, coalesce(g.parent_round, 0) AS round, g.fsm, g.status FROM {s}.gen_durable g WHERE g.parent_id = $1::bigint LIMIT $2::int),
up AS (
  SELECT p.id, p.parent_id, 1 AS n FROM {s}.gen_durable i JOIN {s}.gen_durable p ON p.id = i.parent_id WHERE i.id = $1::bigint
  UNION ALL SELECT p.id, p.parent_id, u.n + 1 FROM up u JOIN {s}.gen_durable p ON p.id = u.parent_id WHERE u.n < $5::int),
first AS MATERIALIZED (
  SELECT r.round, unnest((SELECT array_agg(k.id) FROM (SELECT c.id FROM counted c WHERE c.round = r.round ORDER BY c.id LIMIT $4::int) k)) AS id
  FROM (SELECT DISTINCT c.round FROM counted c ORDER BY c.round DESC LIMIT $3::int) r)
SELECT
  (SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]')::text FROM (
    SELECT round, fsm AS machine, status, count(*) FROM counted GROUP BY 1, 2, 3 ORDER BY 1, 2, 3) c),
  (SELECT coalesce(jsonb_agg(`+relativeText+` || jsonb_build_object('round', f.round) ORDER BY f.round DESC, g.id), '[]')::text
    FROM first f JOIN {s}.gen_durable g ON g.id = f.id),
  (SELECT coalesce(jsonb_agg(`+relativeText+` ORDER BY u.n), '[]')::text FROM up u JOIN {s}.gen_durable g ON g.id = u.id),
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', m.id, 'name', m.name, 'dedup_key', coalesce(m.dedup_key, ''), 'inserted_at', m.inserted_at,
    'bytes', m.bytes) || CASE WHEN m.until <= $7::bigint THEN jsonb_build_object('payload', m.payload) ELSE '{}' END ORDER BY m.id), '[]')::text
    FROM (SELECT s.*, octet_length(s.payload::text) AS bytes, sum(octet_length(s.payload::text)) OVER (ORDER BY s.id) AS until FROM (
      SELECT i.id, i.name, i.dedup_key, i.inserted_at, i.payload FROM {s}.signals i WHERE i.target_id = $1::bigint AND i.consumed_at IS NULL
      ORDER BY i.id LIMIT $6::int) s) m)`)

const relativeText = `jsonb_build_object('id', g.id, 'machine', g.fsm, 'version', g.fsm_version, 'step', g.step, 'status', g.status,
    'paused', g.paused, 'queue', g.queue, 'key', coalesce(g.correlation_key, ''), 'error', left(coalesce(g.last_error, ''), 200))`

// Relations reads what belongs to an instance. There is nothing of one that is gone.
func (s *Store) Relations(ctx context.Context, id int64, b *RelationsBounds) (out Relations, err error) {
	var parts [4]string
	err = s.one(ctx, fastLock, relationsSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&parts[0], &parts[1], &parts[2], &parts[3]}, func() error { return nil })
		return err
	}, id, b.Count, b.Rounds, b.Children, b.Ancestors, b.Inbox, b.Bytes)
	for n, into := range []any{&out.Counts, &out.Children, &out.Ancestors, &out.Inbox} {
		if err == nil {
			err = json.Unmarshal([]byte(parts[n]), into)
		}
	}
	if err != nil {
		return Relations{}, fmt.Errorf("read the parents, children and inbox of instance %d: %w", id, err)
	}
	return out, nil
}
