package environments

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
)

// majorVariable holds the version that "make environments" wants to test.
const majorVariable = "GENDURABLE_TEST_MAJOR"

// oldest is the oldest major version of Postgres that is supported.
const oldest = 15

func TestTheServerIsOfTheVersionMeant(t *testing.T) {
	t.Parallel()
	got := major(t)
	require.GreaterOrEqual(t, got, oldest)
	if meant := os.Getenv(majorVariable); meant != "" {
		require.Equal(t, meant, strconv.Itoa(got))
	}
}

// major is the server's major version.
func major(t *testing.T) int {
	t.Helper()
	var number int
	pool := pgtest.Pool(t, pgtest.Database(t))
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&number))
	return number / 10000
}
