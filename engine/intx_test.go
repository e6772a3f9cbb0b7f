package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/pgtest"
)

type bookingVisit = fsm.Visit[int, string]

var booking = fsm.Declare[int, string]("booking")

// own is the function of a step's own transaction.
type own func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error)

// books starts an engine whose only step has f as its own transaction, and the table that it writes
// to.
func books(t *testing.T, f own, change ...func(*engine.Config)) (e *engine.Engine, pool *pgxpool.Pool) {
	t.Helper()
	pool = pgtest.Pool(t, pgtest.Migrated(t))
	_, err := pool.Exec(t.Context(), `CREATE TABLE booked (instance bigint, what text UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	step := func(_ context.Context, v *bookingVisit) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) { return f(ctx, tx, v) }), nil
	}
	return working(t, pool, append([]func(*engine.Config){rarely, func(c *engine.Config) {
		c.Machines = append(c.Machines, booking.Define(fsm.Step("start", step), fsm.Step("end", func(_ context.Context, v *bookingVisit) (fsm.Outcome, error) {
			return v.Done(fmt.Sprint(len(v.Children()), " children")), nil
		})))
	}}, change...)...), pool
}

func book(ctx context.Context, tx pgx.Tx, v *bookingVisit, what string) error {
	_, err := tx.Exec(ctx, `INSERT INTO booked VALUES ($1, $2)`, int64(v.ID), what)
	return err
}

func TestInTxCommitsTogether(t *testing.T) {
	t.Parallel()
	e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		info, ok := fsm.InfoFrom(ctx)
		if !ok || info.ID != v.ID || v.IdempotencyKey() != info.IdempotencyKey() {
			return nil, errors.New("the context is not the step's")
		}
		if err := book(ctx, tx, v, "a seat"); err != nil {
			return nil, err
		}
		within := engine.FromContext(ctx).WithPgx(tx)
		if _, err := within.Signal(ctx, fsm.Key("seat"), paid.With(1)); err != nil {
			return nil, err
		}
		if _, err := within.Insert(ctx, echoes.New("hello").Key("greeting")); err != nil {
			return nil, err
		}
		return v.ScheduleChildren("end", 1, echoes.New("a"), echoes.New("b").Key("b"), echoes.New("c").Key("b")), nil
	})
	seat, err := e.Insert(t.Context(), ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	parked(t, e, seat)
	id, err := e.Insert(t.Context(), booking.New(0))
	require.NoError(t, err)
	got, err := booking.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, "2 children", got)
	require.Equal(t, 1, number(t, pool, `SELECT count(*) FROM booked`))
	// Queues poll once an hour: the engine has nudged.
	_, err = ticket.Wait(within(t), e, seat)
	require.NoError(t, err)
	_, err = echoes.Wait(within(t), e, fsm.Key("greeting"))
	if !errors.Is(err, engine.ErrNotFound) { // it has ended and left its key
		require.NoError(t, err)
	}
}

// cruelError panics when it is looked at.
type cruelError struct{}

func (cruelError) Error() string { return "cruel" }
func (cruelError) Unwrap() error { panic("alarm") }

// Errors of the function: nothing is written, and the handler is told.
func TestInTxThatFailsWritesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own  own
		says string
	}{
		"error": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			return v.Done(""), errors.Join(book(ctx, tx, v, "x"), errors.New("insufficient funds"))
		}, "insufficient funds"},
		"panic": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			panic("alarm") //nolint:forbidigo // what a step may do
		}, "alarm"},
		"raised": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE EXCEPTION 'no such account'; END $$`)
			return nil, err
		}, "no such account"},
		"an error of Postgres passed over": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return v.Done(""), nil
		}, "a statement failed and the function returned no error"},
		"no outcome": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			return nil, book(ctx, tx, v, "x")
		}, "nil, without an error"},
		"InTx inside": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			return engine.InTx(func(context.Context, pgx.Tx) (fsm.Outcome, error) { return v.Done(""), nil }), book(ctx, tx, v, "x")
		}, "inside of InTx"},
		"an outcome that cannot be": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			return v.Next("nowhere", 1), book(ctx, tx, v, "x")
		}, `no step "nowhere"`},
		"a deferred constraint": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			return v.Done(""), errors.Join(book(ctx, tx, v, "x"), book(ctx, tx, v, "x"))
		}, "duplicate key value"},
		"a report that is nil": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			return nil, (*pgconn.PgError)(nil)
		}, "error of type *pgconn.PgError"},
		"an error that panics": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			return nil, cruelError{}
		}, "panic: alarm"},
		"an error without a text": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			return nil, errors.New("")
		}, "without a text"},
		"timeout": {func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
			_ = book(ctx, tx, v, "x")
			_, err := tx.Exec(ctx, `SELECT pg_sleep(600)`)
			return v.Done(""), err
		}, "step timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			e, pool := books(t, func(context.Context, pgx.Tx, *bookingVisit) (fsm.Outcome, error) { return nil, nil }, func(conf *engine.Config) {
				step := func(_ context.Context, v *bookingVisit) (fsm.Outcome, error) {
					return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
						calls.Add(1)
						return c.own(ctx, tx, v)
					}), nil
				}
				def := fsm.Step("start", step)
				if name == "timeout" {
					def = def.Timeout(200 * time.Millisecond)
				}
				conf.Machines[len(conf.Machines)-1] = booking.Define(def)
			})
			id, err := e.Insert(t.Context(), booking.New(0))
			require.NoError(t, err)
			_, err = booking.Wait(within(t), e, id)
			failed, ok := errors.AsType[*fsm.FailedError](err)
			require.True(t, ok, err)
			require.Contains(t, failed.Message, c.says)
			require.EqualValues(t, 1, calls.Load())
			require.Zero(t, number(t, pool, `SELECT count(*) FROM booked`))
		})
	}
}

// A function that asks to be run later is undone, and costs no attempt.
func TestInTxSnoozes(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		if err := book(ctx, tx, v, "a seat"); err != nil {
			return nil, err
		}
		if calls.Add(1) == 1 {
			return nil, fsm.Again(0)
		}
		return v.Done(fmt.Sprint("attempt ", v.Attempt)), nil
	})
	id, err := e.Insert(t.Context(), booking.New(0))
	require.NoError(t, err)
	got, err := booking.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, "attempt 0", got)
	require.Equal(t, 1, number(t, pool, `SELECT count(*) FROM booked`))
}

func TestInTxIsEndedByTheEngine(t *testing.T) {
	t.Parallel()
	e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
			return nil, errors.New("it let itself be ended")
		}
		saved, err := tx.Begin(ctx) // savepoints are the function's own
		if err != nil {
			return nil, err
		}
		_, _ = saved.Exec(ctx, `SELECT 1/0`)
		if err := saved.Rollback(ctx); err != nil {
			return nil, err
		}
		if v.State == 1 {
			_, err := tx.Exec(ctx, `COMMIT`)
			return v.Done(""), err
		}
		return v.Done("saved"), book(ctx, tx, v, "x")
	})
	id, err := e.Insert(t.Context(), booking.New(0))
	require.NoError(t, err)
	_, err = booking.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, 1, number(t, pool, `SELECT count(*) FROM booked`))
	id, err = e.Insert(t.Context(), booking.New(1))
	require.NoError(t, err)
	_, err = booking.Wait(within(t), e, id)
	require.ErrorContains(t, err, "ended its transaction by COMMIT or ROLLBACK")
}

func TestInTxOfNothing(t *testing.T) {
	t.Parallel()
	_, err := hidden.Commit(engine.InTx(nil), nil)
	wrong, ok := errors.AsType[*fsm.OutcomeError](err)
	require.True(t, ok)
	require.Equal(t, "outcome", wrong.Field)
}

// Two that lock each other's rows: one of them runs again, the whole step, and no handler hears of
// it.
func TestInTxAfterADeadlock(t *testing.T) {
	t.Parallel()
	var meet atomic.Int64
	both := make(chan struct{})
	var runs atomic.Int64
	e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		runs.Add(1)
		if v.Attempt != 0 {
			return nil, errors.New("the attempt has changed")
		}
		lock := func(n int) error {
			_, err := tx.Exec(ctx, `UPDATE account SET cents = cents + 1 WHERE id = $1`, n)
			return err
		}
		if err := lock(v.State); err != nil {
			return nil, err
		}
		if meet.Add(1) == 2 {
			close(both)
		}
		<-both
		if err := lock(1 - v.State); err != nil {
			return nil, err
		}
		return v.Done(""), nil
	})
	_, err := pool.Exec(t.Context(), `CREATE TABLE account (id int, cents int); INSERT INTO account VALUES (0, 0), (1, 0)`)
	require.NoError(t, err)
	in, err := e.InsertMany(t.Context(), []fsm.Spec{booking.New(0), booking.New(1)})
	require.NoError(t, err)
	for _, one := range in {
		_, err := booking.Wait(within(t), e, one.ID)
		require.NoError(t, err)
	}
	// The one that Postgres has given up may meet the other once more, before that gets its lock.
	require.GreaterOrEqual(t, runs.Load(), int64(3))
	require.Equal(t, 2, number(t, pool, `SELECT min(cents) FROM account`))
	require.Equal(t, 2, number(t, pool, `SELECT max(cents) FROM account`))
}

// A small pool, and steps that want another connection of it beside their transaction's: no step
// waits for ever.
func TestInTxLeavesAConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t), func(c *pgxpool.Config) { c.MaxConns = 3 })
	step := func(_ context.Context, v *bookingVisit) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
				return nil, err
			}
			_, err := engine.FromContext(ctx).Insert(ctx, echoes.New("outside"))
			return v.Done(""), err
		}), nil
	}
	e := working(t, pool, rarely, func(c *engine.Config) { c.Machines = append(c.Machines, booking.Define(fsm.Step("start", step))) })
	specs := make([]fsm.Spec, 60)
	for n := range specs {
		specs[n] = booking.New(n)
	}
	in, err := e.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	for _, one := range in {
		_, err := booking.Wait(within(t), e, one.ID)
		require.NoError(t, err)
	}
}

// While the function runs, the row is not locked: signals reach it, and heartbeats extend its
// lease.
func TestInTxHoldsUpNobody(t *testing.T) {
	t.Parallel()
	in, on := make(chan fsm.ID), make(chan struct{})
	e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		if err := book(ctx, tx, v, "x"); err != nil {
			return nil, err
		}
		in <- v.ID
		<-on
		return v.Await("end", 1, paid), nil
	})
	id, err := e.Insert(t.Context(), booking.New(0))
	require.NoError(t, err)
	require.Equal(t, id, <-in)
	_, err = e.Signal(within(t), id, paid.With(1))
	require.NoError(t, err)
	require.Equal(t, 1, number(t, pool, countSignals))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE NOWAIT`, int64(id))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	close(on)
	_, err = booking.Wait(within(t), e, id)
	require.NoError(t, err, "the signal that came meanwhile wakes it")
}
