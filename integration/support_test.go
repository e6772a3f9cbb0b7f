// Package integration tests the engine as a host uses it, on a real Postgres: in one process and in
// several, and with faults of the machines' code, the rows, the connections, the server and the
// processes themselves.
package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

// patience bounds how long a test waits. It is generous: it passes only if an awaited event never
// happens.
const patience = steady.Patience

// config returns the configuration of an engine on a database of the test's own.
func config(t *testing.T, machines ...fsm.Definition) engine.Config {
	t.Helper()
	return configOn(t, pgtest.Migrated(t), machines...)
}

// configOn is config on a given database; the engine polls fast.
func configOn(t *testing.T, url string, machines ...fsm.Definition) engine.Config {
	t.Helper()
	return engine.Config{
		Pool: pgtest.Pool(t, url), Machines: machines,
		Queues: map[string]engine.Queue{"default": quick(20)},
		Logger: newJournal(t).logger(),
	}
}

// quick returns a queue of so many slots that is polled often.
func quick(concurrency int) engine.Queue {
	return engine.Queue{Concurrency: concurrency, PollMin: 20 * time.Millisecond, PollMax: 100 * time.Millisecond}
}

// hasty shortens the times of a configuration, so that a test can wait for a lease to expire.
func hasty(c engine.Config) engine.Config {
	c.Lease, c.Heartbeat, c.Reap = short(), short()/3, 300*time.Millisecond
	c.DrainTimeout, c.DrainGrace = 5*time.Second, time.Second
	return c
}

// start starts an engine, and stops it at the end of the test.
func start(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	eng, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() {
		if err := stop(eng); !t.Skipped() { // else the machine is too slow, perhaps for this, too
			require.NoError(t, err)
		}
	})
	return eng
}

func stop(eng *engine.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return eng.Stop(ctx)
}

// client is an engine without queues.
func client(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	eng, err := engine.New(engine.Config{Pool: pool, Logger: newJournal(t).logger()})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := stop(eng); !t.Skipped() { // else the machine is too slow, perhaps for this, too
			require.NoError(t, err)
		}
	})
	return eng
}

// insert inserts one instance.
func insert(t *testing.T, eng *engine.Engine, spec fsm.Spec) fsm.ID {
	t.Helper()
	id, err := eng.Insert(t.Context(), spec)
	require.NoError(t, err)
	return id
}

// insertAll inserts instances, all of them new.
func insertAll(t *testing.T, eng *engine.Engine, specs []fsm.Spec) []fsm.ID {
	t.Helper()
	inserted, err := eng.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	ids := make([]fsm.ID, len(inserted))
	for i, one := range inserted {
		require.False(t, one.Duplicate)
		ids[i] = one.ID
	}
	return ids
}

// ended waits for the end of an instance.
func ended(t *testing.T, eng *engine.Engine, id fsm.ID) fsm.RawInstance {
	t.Helper()
	ctx, cancel := steady.Context(t)
	defer cancel()
	i, err := eng.Wait(ctx, id)
	require.NoError(t, err, "instance %d", id)
	return i
}

// result waits for the result of an instance.
func result[S, R any](t *testing.T, eng *engine.Engine, m *fsm.Machine[S, R], id fsm.ID) R {
	t.Helper()
	ctx, cancel := steady.Context(t)
	defer cancel()
	got, err := m.Wait(ctx, eng, id)
	require.NoError(t, err)
	return got
}

// allDone waits until every instance is done.
func allDone(t *testing.T, eng *engine.Engine, ids ...fsm.ID) {
	t.Helper()
	for _, id := range ids {
		i := ended(t, eng, id)
		require.Equal(t, fsm.StatusDone, i.Status, "instance %d: %s", id, i.LastError)
	}
}

func get(t *testing.T, eng *engine.Engine, of fsm.Target) fsm.RawInstance {
	t.Helper()
	i, err := eng.Get(t.Context(), of)
	require.NoError(t, err)
	return i
}

// eventually polls until a condition holds, in the test's own goroutine, so that the condition may
// call require.
func eventually(t *testing.T, holds func() bool, message ...any) {
	t.Helper()
	steady.Eventually(t, holds, message...)
}

// happens is eventually for a caller that has more to say if it never happens.
func happens(t *testing.T, holds func() bool) bool {
	t.Helper()
	return steady.Happens(t, patience, func() (struct{}, bool) { return struct{}{}, holds() })
}

func eventuallyStatus(t *testing.T, eng *engine.Engine, of fsm.Target, want fsm.Status) {
	t.Helper()
	eventually(t, func() bool { return get(t, eng, of).Status == want }, "%v never became %s", of, want)
}

// query returns the one value of a statement's one row. gen_durable and signals need their schema
// in front.
func query[T any](t *testing.T, pool *pgxpool.Pool, sql string, arguments ...any) T {
	t.Helper()
	var value T
	require.NoError(t, pool.QueryRow(t.Context(), sql, arguments...).Scan(&value), sql)
	return value
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, arguments ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, arguments...)
	require.NoError(t, err, sql)
}
