package pgdev

import (
	"bytes"
	"io"
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

func TestAptWaitsForItsLists(t *testing.T) {
	dir := t.TempDir()
	tried := filepath.Join(dir, "tried")
	script := "#!/bin/sh\n[ -e " + tried + " ] && exit 0\n: >" + tried + "\necho 'E: Could not get lock /var/lib/apt/lists/lock' >&2\nexit 100\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755))
	t.Setenv("PATH", dir)
	require.NoError(t, apt(t.Context(), io.Discard, "update"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\necho 'E: no network'\nexit 100\n"), 0o755))
	require.ErrorContains(t, apt(t.Context(), io.Discard, "update"), "no network")
}
