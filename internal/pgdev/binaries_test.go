package pgdev

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewestBinariesComeFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9", "15", "16", "14"} {
		dir := filepath.Join(root, version, "bin")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "initdb"), nil, 0o755))
		if version != "16" { // only the client programs are there
			require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), nil, 0o755))
		}
	}
	found, err := allBinaries(filepath.Join(root, "*", "bin"))
	require.NoError(t, err)
	for i, version := range []string{"15", "14", "9"} {
		require.Equal(t, filepath.Join(root, version, "bin"), found[i])
	}
	require.Len(t, found, 3)
}

// The binaries for existing data are of the version that wrote it, whichever are in PATH.
func TestBinariesOfTheVersionOfTheData(t *testing.T) {
	root := t.TempDir()
	nowhere(t)
	programs = []string{filepath.Join(root, "*", "bin")}
	for _, version := range []string{"16", "17"} {
		dir := filepath.Join(root, version, "bin")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		says := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + ".4 (Debian)'\n"
		for _, name := range []string{"initdb", "postgres"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(says), 0o755))
		}
	}
	for major, want := range map[string]string{"": "17", "17": "17", "16": "16"} {
		found, err := findBinaries(major)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(root, want, "bin"), found)
	}
	_, err := findBinaries("15")
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, "the data are of that version, and here is Postgres 17")
}

// nowhere hides all programs from the test, except an apt-get that notes its calls in the file
// whose path it returns.
func nowhere(t *testing.T) (calls string) {
	t.Helper()
	elsewhere := programs
	programs = []string{filepath.Join(t.TempDir(), "*", "bin")}
	t.Cleanup(func() { programs = elsewhere })
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$@\" >>" + calls + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755))
	t.Setenv("PATH", dir)
	t.Setenv("XDG_DATA_HOME", dir) // nothing was fetched there either
	return calls
}

func TestNothingIsInstalledUnasked(t *testing.T) {
	calls := nowhere(t)
	_, err := Start(t.Context())
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, "install it with: ")
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.NotContains(t, err.Error(), "\n", "one line")
	if _, err := findBouncer(); err != nil { // the test cannot empty /usr/sbin
		_, err := StartBouncer(t.Context(), "postgres://nobody@127.0.0.1:1/none")
		require.ErrorIs(t, err, ErrNotInstalled)
		require.ErrorContains(t, err, "apt-get install pgbouncer")
	}
	require.NoFileExists(t, calls)
}

func TestVersionsOfDirectories(t *testing.T) {
	t.Parallel()
	for dir, major := range map[string]int{
		"/usr/lib/postgresql/15/bin": 15, "/usr/pgsql-16/bin": 16, "/opt/homebrew/opt/postgresql@17/bin": 17,
		"/Applications/Postgres.app/Contents/Versions/latest/bin": 0,
	} {
		require.Equal(t, major, version(dir), dir)
	}
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
