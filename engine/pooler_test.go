package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// through returns the URL of a migrated database behind a PgBouncer with these settings,
// "name=value".
func through(t *testing.T, settings ...string) string {
	t.Helper()
	direct := pgtest.Migrated(t)
	var pairs [][2]string
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		pairs = append(pairs, [2]string{name, value})
	}
	return pgtest.Bouncer(t, direct, pairs...).URL(direct)
}

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
}

// startOnce starts an engine, and stops it if that worked.
func startOnce(t *testing.T, url string, mode pgx.QueryExecMode, change ...func(*engine.Config)) error {
	t.Helper()
	e := open(t, pgtest.Pool(t, url, inMode(mode)), change...)
	err := e.Start(within(t))
	if err == nil {
		require.NoError(t, e.Stop(context.Background()))
	}
	return err
}

func byLease(c *engine.Config) { c.PartitionLock = engine.LockLease }

// refused are the fields of Config that an error names.
func refused(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	require.ErrorIs(t, err, engine.ErrPooler)
	var fields []string
	var walk func(error)
	walk = func(err error) {
		if wrong, ok := err.(*engine.ConfigError); ok { //nolint:errorlint // each node of the tree is looked at
			fields = append(fields, wrong.Field)
			return
		}
		switch u := err.(type) { //nolint:errorlint // the same
		case interface{ Unwrap() []error }:
			for _, one := range u.Unwrap() {
				walk(one)
			}
		case interface{ Unwrap() error }:
			walk(u.Unwrap())
		}
	}
	walk(err)
	return fields
}

var modes = map[pgx.QueryExecMode][]string{ // and the field that a pooled transaction makes wrong
	pgx.QueryExecModeCacheStatement: {"Pool"},
	pgx.QueryExecModeCacheDescribe:  nil,
	pgx.QueryExecModeDescribeExec:   {"Pool"},
	pgx.QueryExecModeExec:           nil,
	pgx.QueryExecModeSimpleProtocol: nil,
}

func TestStartRefusesWhatAPoolerOfTransactionsWouldBreak(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"as it comes":         nil,
		"one session":         {"default_pool_size=1"},
		"sessions in turns":   {"server_round_robin=1"},
		"two of them":         {"server_round_robin=1", "default_pool_size=2"},
		"cached for a second": {"server_lifetime=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := through(t, settings...)
			for mode, wrong := range modes {
				require.ElementsMatch(t, append([]string{"PartitionLock"}, wrong...), refused(t, startOnce(t, url, mode, rarely)), mode)
				require.ElementsMatch(t, wrong, refused(t, startOnce(t, url, mode, rarely, byLease)), mode)
				require.ElementsMatch(t, wrong, refused(t, startOnce(t, url, mode)), "a client locks nothing")
			}
		})
	}
}

// Other clients take and give back the sessions that the engine looks at.
func TestStartRefusesAPoolerThatIsBusy(t *testing.T) {
	t.Parallel()
	url := through(t, "default_pool_size=4")
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	others := pgtest.Pool(t, url, inMode(pgx.QueryExecModeExec), func(c *pgxpool.Config) { c.MaxConns = 6 })
	for range 6 {
		busy.Go(func() {
			for ctx.Err() == nil {
				_, err := others.Exec(ctx, "SELECT count(*) FROM generate_series(1, 1000)")
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	t.Cleanup(busy.Wait)
	t.Cleanup(cancel)
	for range 10 {
		require.ElementsMatch(t, []string{"Pool", "PartitionLock"}, refused(t, startOnce(t, url, pgx.QueryExecModeCacheStatement, rarely)))
	}
}

func TestStartBehindAPoolerOfSessions(t *testing.T) {
	t.Parallel()
	url := through(t, "pool_mode=session")
	for mode := range modes {
		require.NoError(t, startOnce(t, url, mode, rarely), mode)
	}
}

func TestStartWithoutAPooler(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	for mode := range modes {
		require.NoError(t, startOnce(t, url, mode, rarely), mode)
	}
}

func TestTheRefusalSaysWhatToSet(t *testing.T) {
	t.Parallel()
	url := through(t)
	err := startOnce(t, url, pgx.QueryExecModeCacheStatement, rarely)
	require.ErrorContains(t, err, "pgx.QueryExecModeExec")
	require.ErrorContains(t, err, "engine.LockLease")
}
