package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// bounded limits a pool.
func bounded(connections int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = connections }
}

// everything is a machine that uses the database in every way that a step can: keys, children, its
// inbox, the engine's own verbs.
func everything() (*fsm.Machine[int, int], []fsm.Definition) {
	type visit = fsm.Visit[int, int]
	m := fsm.Declare[int, int]("everything")
	leaf := fsm.Declare[int, int]("leaf")
	ping := fsm.DeclareSignal[int]("ping")
	return m, []fsm.Definition{
		m.Define(
			fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
				return v.ScheduleChildren("joined", v.State, leaf.New(1).PartitionKey(strconv.Itoa(v.State%3)), leaf.New(2).Key(fsm.Key(fmt.Sprint("leaf ", v.ID)))), nil
			}),
			fsm.Step("joined", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
				if _, err := engine.FromContext(ctx).Signal(ctx, v.ID, ping.With(v.State)); err != nil {
					return nil, err
				}
				return v.Await("pinged", len(v.Children()), ping), nil
			}),
			fsm.Step("pinged", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
				inbox, err := v.Inbox(ctx)
				if err != nil {
					return nil, err
				}
				return v.Done(v.State + len(inbox)), nil
			})),
		leaf.Job(func(_ context.Context, n int) (int, error) { return n, nil }),
	}
}

func TestTheSmallestPoolIsEnough(t *testing.T) {
	t.Parallel()
	m, defs := everything()
	database := pgtest.Migrated(t)
	c := configOn(t, database, defs...)
	c.Pool = pgtest.Pool(t, database, bounded(2))
	eng := start(t, c)
	outside := client(t, pgtest.Pool(t, database))
	var specs []fsm.Spec
	for n := range tier.Pick(30, 100) {
		specs = append(specs, m.New(n).PartitionKey(strconv.Itoa(n%10)))
	}
	for _, id := range insertAll(t, eng, specs) {
		require.JSONEq(t, "3", string(ended(t, outside, id).Result))
	}
}

func TestAHostThatHoldsAllButOneConnectionStopsNothing(t *testing.T) {
	t.Parallel()
	m, defs := everything()
	database := pgtest.Migrated(t)
	c := configOn(t, database, defs...)
	c.Pool = pgtest.Pool(t, database, bounded(4))
	for range 3 {
		held, err := c.Pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(held.Release)
	}
	start(t, c)
	outside := client(t, pgtest.Pool(t, database))
	var specs []fsm.Spec
	for n := range tier.Pick(20, 50) {
		specs = append(specs, m.New(n).PartitionKey(strconv.Itoa(n%10)))
	}
	for _, id := range insertAll(t, outside, specs) {
		require.JSONEq(t, "3", string(ended(t, outside, id).Result))
	}
}

// The heartbeat has a separate connection: a step outlives its lease while the host holds the whole
// pool, and ends once the host gives some connections back.
func TestAHostThatHoldsTheWholePoolCostsNoLease(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("patient")
	gate := make(chan struct{})
	var runs atomic.Int64
	database := pgtest.Migrated(t)
	c := hasty(configOn(t, database, m.Job(func(context.Context, int) (int, error) {
		runs.Add(1)
		<-gate
		return 1, nil
	})))
	c.Pool = pgtest.Pool(t, database, bounded(4))
	c.Lease *= 2 // it is waited for, and several beats in a row may be late on a busy machine
	watchdog := steady.Watch(t)
	eng := start(t, c)
	other := start(t, hasty(configOn(t, database, plainJob()))) // its reaper works
	id := insert(t, eng, m.New(0).PartitionKey("k"))
	eventually(t, func() bool { return runs.Load() == 1 })

	var held []*pgxpool.Conn
	for range 4 {
		conn, err := c.Pool.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, conn)
	}
	outside := pgtest.Pool(t, database)
	first := query[string](t, outside, `SELECT lease_expires_at::text FROM gendurable.gen_durable WHERE id = $1`, id)
	eventually(t, func() bool { // without the beats, the first lease would be long over
		return query[bool](t, outside, `SELECT clock_timestamp() > $1::timestamptz + interval '1 s'`, first)
	})
	close(gate)
	for _, conn := range held {
		conn.Release()
	}
	allDone(t, other, id)
	if runs.Load() != 1 || get(t, other, id).Crashes != 0 {
		watchdog.SkipIfStood(c.Lease / 3)
	}
	require.EqualValues(t, 1, runs.Load())
	require.Zero(t, get(t, other, id).Crashes)
}
