//go:build unix

package pgdev

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACitusClusterMovesASchema shows that the nodes reach one another: through the coordinator,
// to replicate, and with their own password.
func TestACitusClusterMovesASchema(t *testing.T) {
	t.Parallel()
	binaries := os.Getenv("GENDURABLE_TEST_CITUS")
	if binaries == "" {
		t.Skip("no Citus: set GENDURABLE_TEST_CITUS to the bin directory of a Postgres that has it, or run make citus")
	}
	cluster, err := StartCitus(t.Context(), binaries, 2, WithoutFsync())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop()) })
	require.NoError(t, cluster.Join(t.Context(), "joined"))

	conn := connect(t, cluster.Coordinator.URL("joined"))
	for _, sql := range []string{
		"CREATE SCHEMA one", "CREATE TABLE one.kept (n int PRIMARY KEY)", "INSERT INTO one.kept VALUES (1)",
		"SELECT citus_schema_distribute('one')",
	} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	owner := func() (port int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT nodeport FROM citus_shards WHERE table_name = 'one.kept'::regclass").Scan(&port))
		return port
	}
	from := owner()
	to := cluster.Workers[0].Port()
	if from == to {
		to = cluster.Workers[1].Port()
	}
	_, err = conn.Exec(t.Context(), "SELECT citus_schema_move('one', '127.0.0.1', $1::int, 'force_logical')", to)
	require.NoError(t, err)
	require.Equal(t, to, owner())
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT n FROM one.kept").Scan(&n))
	require.Equal(t, 1, n)
}
