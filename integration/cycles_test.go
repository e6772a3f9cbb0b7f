package integration

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// The test is not parallel, since it counts the goroutines and connections of the whole process.
func TestStartingAndStoppingOverAndOverLeavesNothing(t *testing.T) {
	stubborn := fsm.Declare[plain, int]("stubborn")
	c := engine.Config{
		Pool: pgtest.Pool(t, pgtest.Migrated(t)),
		Machines: []fsm.Definition{plainJob(), stubborn.Job(func(ctx context.Context, _ plain) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})},
		Queues: map[string]engine.Queue{"default": quick(5), "another": quick(5)},
		Lease:  time.Hour, Heartbeat: time.Second, Reap: 20 * time.Millisecond,
		DrainTimeout: 5 * time.Millisecond, DrainGrace: patience,
		Logger: slog.New(slog.DiscardHandler),
	}
	cycle := func(n int) {
		eng, err := engine.New(c)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ran := make(chan error, 1)
		if n%2 == 0 {
			go func() { ran <- eng.Run(ctx) }()
		} else {
			require.NoError(t, eng.Start(ctx))
			ran <- nil
		}
		waited := make(chan error, 1)
		if n%5 == 0 { // it stops before it has done anything
			waited <- engine.ErrStopped
		} else {
			// It stops in the middle of work: this instance, under its key, is given back each time, and its
			// caller waits in vain.
			held, err := eng.GetOrInsert(t.Context(), stubborn.New(plain{}).Key("held").PartitionKey("held"))
			require.NoError(t, err)
			go func() {
				_, err := eng.Wait(t.Context(), held.ID)
				waited <- err
			}()
			ids := insertAll(t, eng, []fsm.Spec{plainMachine.New(plain{n}).PartitionKey("key"), plainMachine.New(plain{n}).PartitionKey("key"),
				plainMachine.New(plain{n}), plainMachine.New(plain{n}).Queue("another").PartitionKey("other")})
			allDone(t, eng, ids...)
			eventuallyStatus(t, eng, held.ID, fsm.StatusExecuting)
		}
		cancel()
		require.NoError(t, <-ran)
		require.NoError(t, stop(eng))
		require.ErrorIs(t, <-waited, engine.ErrStopped)
		require.Zero(t, query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing'`), "not given back")
	}
	for n := range 6 { // the first rounds make everything that is made once, e.g. the pool's connections
		cycle(n)
	}
	goroutines, files := 0, openFiles(t)
	eventually(t, func() bool { // as below, where the wait itself has a goroutine
		goroutines = runtime.NumGoroutine()
		return true
	})
	cycles := tier.Size(t, "CYCLES", 20, 40, 1000)
	require.Positive(t, cycles, "CYCLES")
	for n := range cycles {
		cycle(n)
	}

	require.Zero(t, query[int](t, c.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE attempt + crashes > 0 OR locked_by IS NOT NULL`))
	// Postgres notices a moment later that a connection is closed.
	const others = `FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`
	eventually(t, func() bool {
		return query[int](t, c.Pool, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE l.locktype = 'advisory' AND d.datname = current_database()`) == 0
	}, "advisory locks are left")
	eventually(t, func() bool { return query[int](t, c.Pool, `SELECT count(*) `+others+` AND state <> 'idle'`) == 0 }, "transactions are left open")
	eventually(t, func() bool {
		return query[int](t, c.Pool, `SELECT 1 + count(*) `+others) <= int(c.Pool.Stat().TotalConns())
	}, "connections beside the pool are left")
	// The pool closes a connection whose query was cancelled beside its callers.
	eventually(t, func() bool { return c.Pool.Stat().AcquiredConns() == 0 }, "connections of the pool are not given back")
	most := int(c.Pool.Config().MaxConns) // the pool may have opened them meanwhile
	eventually(t, func() bool { return openFiles(t) <= files+most }, "files are left open: %d, then %d", files, openFiles(t))
	eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, "goroutines are left: %d, then %d", goroutines, runtime.NumGoroutine())
}

// openFiles counts the file descriptors of this process, connections among them; 0 if the system
// does not show them.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return len(entries)
}
