package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	patientLeast = 10 * time.Millisecond
	patientMost  = time.Second
)

// task is what patiently is at, for its log.
type task struct {
	doing string
	row   store.Address // that it may wait for; zero: none in particular
	attrs []slog.Attr
}

// patiently calls once again and again while it meets a transient fault of Postgres, until ctx
// ends. It is the one rule of all verbs and reads: the caller's context says how long to wait for
// an outage or a locked row. The log names the first failure, and ever fewer of those that follow.
func (e *Engine) patiently(ctx context.Context, t task, once func() error) error {
	var fault error // of the attempt before
	for n := 1; ; n++ {
		err := once()
		if err == nil {
			return nil
		}
		if !repeatable(err) {
			if fault != nil && ctx.Err() != nil {
				return fmt.Errorf("%w; the attempt before: %w", err, fault) // the end of ctx says nothing
			}
			return err
		}
		if n&(n-1) == 0 {
			e.complain(ctx, t, n, err)
		}
		if !pause(ctx, n) {
			return fmt.Errorf("%w; given up after %d attempts: %w", err, n, context.Cause(ctx))
		}
		fault = err
	}
}

func (e *Engine) complain(ctx context.Context, t task, n int, err error) {
	attrs := append(slices.Clone(t.attrs), slog.Int("attempt", n), slog.Any("error", err))
	if t.row != (store.Address{}) {
		if holder, ok := store.HeldBy(ctx, e.store, t.row, err); ok {
			attrs = append(attrs, holder.Attr())
		}
	}
	e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "cannot "+t.doing+" yet, trying again", attrs...)
}

// pause waits before the next attempt, and reports whether ctx let it.
func pause(ctx context.Context, n int) bool {
	return pace.Sleep(ctx, pace.Backoff(n, patientLeast, patientMost))
}

// startSessions is on how many sessions Start tries each of its checks.
const startSessions = 5

// onASession carries out a check of Start's. It repeats the check on another session if the first
// has ended, since a pool may give out one that the server has just ended, for its idleness say;
// and if the server has cancelled its statement, since a role's statement_timeout may be short and
// the machine busy. No other fault is repeated. If the database does not answer, Start fails at
// once, and its caller decides. A statement that is lost shows a proxy that checkPooler has not
// recognised, since others took turns with its sessions.
func (e *Engine) onASession(ctx context.Context, check func(context.Context) error) error {
	for n := 1; ; n++ {
		err := check(ctx)
		if losesStatements(err) {
			if wrong := e.poolerFaults(pooler{transactions: true}); wrong != nil {
				return fmt.Errorf("%w: %w", wrong, err)
			}
		}
		if n == startSessions || !store.IsSessionOver(err) && !store.IsCancelled(err) || !pause(ctx, n) {
			return err
		}
	}
}

// repeatable reports whether an error is a fault that passes, and no answer.
func repeatable(err error) bool { return store.Classify(err) == store.FaultTransient && !isAnswer(err) }

// isAnswer reports whether an error says what the engine has found or refused. What no server has
// reported counts as a broken connection, so the answers are named.
func isAnswer(err error) bool {
	for _, answer := range []error{ErrUnknown, ErrNotFound, ErrDuplicate, ErrNoSchedule, ErrConflict, store.ErrNoGate, store.ErrNoKey} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return isA[*VerbError](err) || isA[*QueryError](err) || isA[*InsertError](err) || isA[*store.TooManyError](err)
}

func isA[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}
