package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A row pauses a queue. Claims do not look for it, since that would cost each of them. Instead
// every worker looks when it polls, at least once a second, and claims nothing until the row is
// gone. A claim that was sent before may still take rows; the worker gives them back unstarted.
//
// $1 queue $2 actor $3 reason
var (
	pauseQueueSQL = named("pause queue", `WITH p AS (INSERT INTO {s}.paused_queues (queue) VALUES ($1) ON CONFLICT (queue) DO NOTHING RETURNING queue, paused_at),
a AS (`+recordedText+`'admin.pause_queue', 'queue ' || p.queue, $2::text, $3::text, NULL, jsonb_build_object('paused_at', p.paused_at) FROM p)
SELECT queue FROM p`)
	resumeQueueSQL = named("resume queue", `WITH p AS (DELETE FROM {s}.paused_queues WHERE queue = $1 RETURNING queue, paused_at),
a AS (`+recordedText+`'admin.resume_queue', 'queue ' || p.queue, $2::text, $3::text, jsonb_build_object('paused_at', p.paused_at), NULL FROM p)
SELECT queue FROM p`)
)

// PausedQueue is a queue from which nothing is claimed.
type PausedQueue struct {
	Queue string
	Since time.Time
}

// PauseQueue pauses a queue if on is true, resumes it otherwise, and reports whether that changed
// anything.
func (s *Store) PauseQueue(ctx context.Context, queue string, on bool, by By) (changed bool, err error) {
	read := func(rows pgx.Rows) error {
		var queue string
		_, err := pgx.ForEachRow(rows, []any{&queue}, func() error { changed = true; return nil })
		return err
	}
	doing, change := "pause", s.stmt(pauseQueueSQL, read, queue, by.Actor, optional(by.Reason))
	if !on {
		doing, change = "resume", s.stmt(resumeQueueSQL, read, queue, by.Actor, optional(by.Reason))
	}
	err = s.transaction(ctx, slowLock, change)
	if err != nil && unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return false, fmt.Errorf("%s queue %q: %w", doing, queue, err)
	}
	return changed, nil
}
