package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Presence is a worker's report about itself.
type Presence struct {
	Worker   string // its UUID
	Host     string
	PID      int
	Version  string
	Queues   map[string]int
	Machines []string // MachineID of each
	Draining bool
	Live     time.Duration // how long the report counts without another one
}

// presentKept is how long the table remembers a worker that is gone: long enough for a person who
// looks for it after its death.
const presentKept = time.Hour

// presentSQL registers a worker, and deletes workers that have been gone for long. SKIP LOCKED lets
// several workers delete them at once.
//
// $1 worker $2 host $3 pid $4 version $5 queues $6 machines $7 draining $8 how long the report
// counts, µs $9 how long the gone are kept, µs $10 its release
var presentSQL = named("present", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
gone AS (
  DELETE FROM {s}.workers w WHERE w.ctid = ANY(ARRAY(
    SELECT x.ctid FROM {s}.workers x
    WHERE x.expires_at < (SELECT now FROM c) - $9::bigint * interval '1 microsecond' AND x.id <> $1::uuid FOR UPDATE SKIP LOCKED)))
INSERT INTO {s}.workers (id, host, pid, version, queues, machines, draining, started_at, beat_at, expires_at, release)
SELECT $1::uuid, $2, $3, $4, $5::jsonb, $6::text[], $7, now, now, now + $8::bigint * interval '1 microsecond', $10::int FROM c
ON CONFLICT (id) DO UPDATE SET draining = excluded.draining, beat_at = excluded.beat_at, expires_at = excluded.expires_at`)

var absentSQL = named("absent", `DELETE FROM {s}.workers w WHERE w.id = $1::uuid`)

// Present registers a worker, or renews its report.
func (l *Line) Present(ctx context.Context, p *Presence) error {
	queues, err := json.Marshal(p.Queues)
	if err != nil {
		return err
	}
	return l.say(ctx, l.s.stmt(presentSQL, nil, p.Worker, p.Host, p.PID, p.Version, string(queues), p.Machines, p.Draining, micros(p.Live),
		micros(presentKept), thisRelease))
}

// Absent removes a worker's report.
func (l *Line) Absent(ctx context.Context, worker string) error {
	return l.say(ctx, l.s.stmt(absentSQL, nil, worker))
}

var nowSQL = named("now", `SELECT clock_timestamp()`)

// Now reads the server's clock.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.one(ctx, fastLock, nowSQL, func(rows pgx.Rows) error {
		now, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
		return err
	})
	if err != nil {
		return now, fmt.Errorf("ask the server for the time: %w", err)
	}
	return now, nil
}

func (l *Line) say(ctx context.Context, what entpgx.Stmt) error {
	err := l.transaction(ctx, func() []entpgx.Stmt { return []entpgx.Stmt{what} })
	if err != nil {
		return fmt.Errorf("register worker %s: %w", what.Name, err)
	}
	return nil
}
