// Package integration tests the engine as a host uses it, on a real Postgres.
package integration

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// config of an engine on a database of the test's own.
func config(t *testing.T, machines ...fsm.Definition) engine.Config {
	t.Helper()
	return configOn(t, pgtest.Migrated(t), machines...)
}

// configOn is config on a given database, polling fast.
func configOn(t *testing.T, url string, machines ...fsm.Definition) engine.Config {
	t.Helper()
	return engine.Config{
		Pool: pgtest.Pool(t, url), Machines: machines,
		Queues: map[string]engine.Queue{"default": {Concurrency: 20, PollMin: 20 * time.Millisecond, PollMax: 100 * time.Millisecond}},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// start starts an engine, and stops it at the end of the test.
func start(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	eng, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, eng.Stop(ctx))
	})
	return eng
}

func eventuallyStatus(t *testing.T, eng *engine.Engine, of fsm.Target, want fsm.Status) {
	t.Helper()
	require.Eventually(t, func() bool {
		i, err := eng.Get(t.Context(), of)
		require.NoError(t, err)
		return i.Status == want
	}, 20*time.Second, 5*time.Millisecond)
}
