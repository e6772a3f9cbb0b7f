package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// ErrCutOff means that a count exceeded its time limit.
var ErrCutOff = errors.New("cut off")

// Count is the number of instances that are alike.
type Count struct {
	Machine string
	Version int
	Step    string
	Queue   string
	Status  string
	Count   int64
}

var beginCountSQL = named("begin count", `BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY`)

// countSettingsSQL differs from settingsSQL, since counting reads the table from end to end, unlike
// all other statements. So it allows a scan, but by one process of the server only, which serves
// others too.
var countSettingsSQL = named("count settings", `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', '0', true),
  set_config('enable_seqscan', 'on', true), set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true),
  {untimed}`)

// countSQL uses no index: one that names the step would have to be maintained by every commit
// (T82).
var countSQL = named("count", `SELECT g.fsm, g.fsm_version, g.step, g.queue, g.status::text, count(*) FROM {s}.gen_durable g
GROUP BY g.fsm, g.fsm_version, g.step, g.queue, g.status ORDER BY g.fsm, g.fsm_version, g.step, g.queue, g.status`)

// Count counts all instances. It returns ErrCutOff if the server takes longer than limit.
func (s *Store) Count(ctx context.Context, limit time.Duration) (counts []Count, err error) {
	settings := s.stmt(countSettingsSQL, nil, strconv.FormatInt(limit.Milliseconds(), 10))
	settings.Ahead = true
	err = s.pipeline(ctx, []entpgx.Stmt{
		s.stmt(beginCountSQL, nil),
		settings,
		s.stmt(countSQL, func(rows pgx.Rows) error {
			var c Count
			_, err := pgx.ForEachRow(rows, []any{&c.Machine, &c.Version, &c.Step, &c.Queue, &c.Status, &c.Count}, func() error {
				counts = append(counts, c)
				return nil
			})
			return err
		}),
		s.stmt(endSQL, nil),
	}...)
	switch {
	case err == nil:
		return counts, nil
	case ctx.Err() == nil && IsCancelled(err):
		return nil, fmt.Errorf("count all instances within %v: %w: %w", limit, ErrCutOff, err)
	}
	return nil, fmt.Errorf("count all instances: %w", err)
}
