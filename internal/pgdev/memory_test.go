//go:build unix

package pgdev

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cluster without fsync is in memory if there is room, and always in TMPDIR if that is set. One
// with fsync never is: what it measures and survives is a disk's.
func TestOnlyAClusterWithoutFsyncIsInMemory(t *testing.T) {
	own := temporary(t)
	volatile, durable := newConfig([]Option{WithoutFsync()}), newConfig(nil)
	require.Equal(t, own, volatile.parent())

	require.NoError(t, os.Unsetenv("TMPDIR"))
	require.Equal(t, os.TempDir(), durable.parent())
	if memory() == "" {
		require.Equal(t, os.TempDir(), volatile.parent())
		return
	}
	require.Equal(t, memory(), volatile.parent())
	cluster, err := Start(t.Context(), WithoutFsync())
	require.NoError(t, err)
	dir := cluster.dir
	require.Equal(t, memory(), filepath.Dir(dir))
	require.DirExists(t, filepath.Join(dir, "data", "base"))
	require.NoError(t, cluster.Stop())
	require.NoDirExists(t, dir)
}
