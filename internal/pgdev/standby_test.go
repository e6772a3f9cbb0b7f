package pgdev

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

func TestAPromotedStandbyHasWhatItsPrimaryHad(t *testing.T) {
	t.Parallel()
	primary := start(t, WithSetting("fsync", "off"))
	conn := connect(t, primary.URL(""))
	_, err := conn.Exec(t.Context(), "CREATE TABLE kept (n int)")
	require.NoError(t, err)

	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	writable, err := primary.WritableURL("", standby)
	require.NoError(t, err)
	_, err = connect(t, writable).Exec(t.Context(), "INSERT INTO kept VALUES (1)")
	require.NoError(t, err)
	there := connect(t, standby.URL(""))
	_, err = there.Exec(t.Context(), "INSERT INTO kept VALUES (2)")
	require.ErrorContains(t, err, "25006")
	steady.Eventually(t, func() bool {
		var n int
		return there.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n) == nil && n == 1
	}, "nothing was streamed")

	require.NoError(t, primary.StopImmediate())
	require.NoError(t, standby.Promote(t.Context()))
	_, err = connect(t, writable).Exec(t.Context(), "INSERT INTO kept VALUES (2)")
	require.NoError(t, err)
}
