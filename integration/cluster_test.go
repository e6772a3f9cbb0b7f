package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// cluster is a server of the test's own, for faults of a server.
type cluster struct {
	*pgdev.Cluster

	t *testing.T
}

// ownCluster starts a server with the engine's schema in its database. A crash of the server loses
// nothing that was committed; a crash of the machine might, but no test does that.
func ownCluster(t *testing.T) cluster {
	t.Helper()
	c, err := pgdev.Start(t.Context(), pgdev.WithSetting("fsync", "off"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	pool := pgtest.Pool(t, c.URL(""))
	_, err = migrate.Migrator{Pool: pool}.Up(t.Context())
	require.NoError(t, err)
	pool.Close()
	return cluster{c, t}
}

// crash stops the server as a crash does, and ends all connections.
func (c cluster) crash() { require.NoError(c.t, c.StopImmediate()) }

// comeBack starts it again, with crash recovery.
func (c cluster) comeBack() { require.NoError(c.t, c.Restart(c.t.Context())) }

// readOnly makes the server refuse to write, as a standby does, or accept writes again.
func (c cluster) readOnly(on bool) {
	c.t.Helper()
	pool := pgtest.Pool(c.t, c.URL(""))
	defer pool.Close()
	value := map[bool]string{true: "on", false: "off"}[on]
	execute(c.t, pool, "SET default_transaction_read_only = off")
	execute(c.t, pool, "ALTER SYSTEM SET default_transaction_read_only = "+value)
	execute(c.t, pool, "SELECT pg_reload_conf()")
	eventually(c.t, func() bool {
		fresh := pgtest.Pool(c.t, c.URL(""))
		defer fresh.Close()
		return query[string](c.t, fresh, "SHOW default_transaction_read_only") == value
	})
}

// hangUp ends every other session.
func (c cluster) hangUp() {
	c.t.Helper()
	pool := pgtest.Pool(c.t, c.URL(""))
	defer pool.Close()
	execute(c.t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
}
