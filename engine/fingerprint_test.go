package engine

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A cursor of a list without bounds is one of every release: a page that was read before an upgrade
// leads on to the next.
func TestTheFingerprintOfAListWithoutBoundsStays(t *testing.T) {
	t.Parallel()
	of, err := fingerprint(&store.Filter{Machine: "m"}, true)
	require.NoError(t, err)
	sum := sha256.Sum256([]byte(`{"Filter":{"Machine":"m","Version":0,"Step":"","Queue":"","Statuses":null,"Failures":null,"KeyPrefix":"","Key":"",` +
		`"PartitionKey":"","Labels":"","Parent":0,"InsertedAfter":"0001-01-01T00:00:00Z","InsertedBefore":"0001-01-01T00:00:00Z","ErrorText":""},"OldestFirst":true}`))
	require.Equal(t, sum[:8], of[:])
	bound, err := fingerprint(&store.Filter{Machine: "m", Within: store.Bounds{Queues: []string{}}}, true)
	require.NoError(t, err)
	require.NotEqual(t, of, bound)
}
