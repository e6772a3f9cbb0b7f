package pgdev

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewestBinaries(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	pattern := filepath.Join(root, "*", "bin")

	_, err := newestBinaries(pattern)
	require.ErrorIs(t, err, errNoPostgres)

	for _, version := range []string{"9", "15", "16"} {
		dir := filepath.Join(root, version, "bin")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "initdb"), nil, 0o755))
		if version != "16" { // only the client programs are there
			require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), nil, 0o755))
		}
	}
	found, err := newestBinaries(pattern)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "15", "bin"), found)
}

func TestMissingPostgresNamesTheCommandToRun(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var progress bytes.Buffer
	_, err := installBinaries(t.Context(), &progress)
	require.ErrorIs(t, err, errNoPostgres)
	require.ErrorContains(t, err, "install")
	require.Empty(t, progress.String())
}

func TestForbidMainCluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "createcluster.d")
	require.NoError(t, forbidMainCluster(dir))
	content, err := os.ReadFile(filepath.Join(dir, "gendurable.conf"))
	require.NoError(t, err)
	require.Equal(t, "create_main_cluster = false\n", string(content))
}
