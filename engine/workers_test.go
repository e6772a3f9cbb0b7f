package engine_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

func TestWorkersRegister(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	c := open(t, pool)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	none, err := c.Admin().Workers(t.Context())
	require.NoError(t, err)
	require.Empty(t, none, "a client is none")

	e := open(t, pool, rarely, func(c *engine.Config) {
		c.Queues["other"] = engine.Queue{Concurrency: 7}
		// A heartbeat's statement, which may have to connect first, has a twelfth of the lease: on a
		// busy machine a short lease would leave no time for a connection.
		c.Lease, c.Heartbeat = 12*time.Second, 100*time.Millisecond
	})
	require.NoError(t, e.Start(t.Context()))
	var there engine.Worker
	steady.Eventually(t, func() bool {
		all, err := c.Admin().Workers(t.Context())
		if err != nil || len(all) != 1 {
			return false
		}
		there = all[0]
		return there.Beat.After(there.Started)
	}, "it beats")
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, engine.Worker{
		ID: there.ID, Host: host, PID: os.Getpid(), Version: there.Version, Started: there.Started, Beat: there.Beat, Live: there.Live,
		Queues: map[string]int{"default": there.Queues["default"], "other": 7}, Machines: []string{"echo/1", "ticket/1"},
	}, there)
	require.NotEmpty(t, there.Version)
	require.NotZero(t, there.Queues["default"])

	// One that died is seen to be dead, and forgotten after an hour by those who live.
	dead := func(ago string) {
		_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
			VALUES (gen_random_uuid(), 'gone', 1, '', '{}', '{}', now() - $1::interval)`, ago)
		require.NoError(t, err)
	}
	dead("59 minutes")
	dead("61 minutes")
	steady.Eventually(t, func() bool {
		all, err := c.Admin().Workers(t.Context())
		return err == nil && len(all) == 2 && all[0].Live != all[1].Live
	}, "the one that is long gone is forgotten")

	require.NoError(t, e.Stop(t.Context()))
	all, err := c.Admin().Workers(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1, "one that stops in order is gone at once")
	require.Equal(t, "gone", all[0].Host)
	require.False(t, all[0].Live)
}
