package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ariga.io/atlas/sql/migrate"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/migrations"
)

const (
	nextVersion = "20991231000000"
	nextName    = nextVersion + "_next.sql"
	// The new migration does what most migrations do, and it makes plans obsolete of statements that
	// running engines have prepared.
	nextUp = `SET LOCAL lock_timeout = '5s';

ALTER TABLE "gen_durable" ADD COLUMN "next" text NOT NULL DEFAULT 'new', ALTER COLUMN "last_error" SET STORAGE MAIN;
ALTER TABLE "signals" ADD COLUMN "next" bigint;
ALTER TYPE "durable_status" ADD VALUE 'next';
`
	nextDown = "SELECT 1;\n"
)

// The next release also has the next number, and what the workers before it cannot serve: to it,
// these are graphs.
var nextRelease = strings.NewReplacer("thisRelease = 1", "thisRelease = 2", "graphsSince = 1", "graphsSince = 2")

// builds compiles the program as it is, and as it will be after one more migration, in a release
// that writes what this one cannot serve.
func builds(t *testing.T) (older, newer string) {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.NotContains(t, migrations.Versions(), nextVersion)

	// This is a directory of migrations with one more.
	all, err := migrate.NewLocalDir(filepath.Join(root, "migrations"))
	require.NoError(t, err)
	memory := &migrate.MemDir{}
	files, err := all.Files()
	require.NoError(t, err)
	for _, file := range files {
		require.NoError(t, memory.WriteFile(file.Name(), file.Bytes()))
	}
	require.NoError(t, memory.WriteFile(nextName, []byte(nextUp)))
	sum, err := memory.Checksum()
	require.NoError(t, err)
	sums, err := sum.MarshalText()
	require.NoError(t, err)

	replace := map[string]string{}
	numbers := filepath.Join(root, "internal", "store", "release.go")
	was, err := os.ReadFile(numbers)
	require.NoError(t, err)
	next := nextRelease.Replace(string(was))
	require.Equal(t, 1, strings.Count(next, "thisRelease = 2"))
	require.Equal(t, 1, strings.Count(next, "graphsSince = 2"))
	replace[numbers] = filepath.Join(dir, "release.go")
	require.NoError(t, os.WriteFile(replace[numbers], []byte(next), 0o600))
	for at, content := range map[string]string{
		nextName: nextUp, "down/" + nextName: nextDown, migrate.HashFileName: string(sums),
	} {
		instead := filepath.Join(dir, strings.ReplaceAll(at, "/", "_"))
		require.NoError(t, os.WriteFile(instead, []byte(content), 0o600))
		replace[filepath.Join(root, "migrations", at)] = instead
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	newer = filepath.Join(dir, "newer")
	compile(t, "-o", newer, "-overlay", overlayFile)
	return build(t), newer
}

// builtAny is set once there is something that TestMain has to remove.
var builtAny bool

// built is the program as it is, which the tests share.
var built = sync.OnceValues(func() (string, error) {
	builtAny = true
	dir, err := os.MkdirTemp("", "gendurable-rollout-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "program")
	if out, err := exec.Command("go", "build", "-o", path, "./cmd").CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w", out, err), os.RemoveAll(dir))
	}
	return path, nil
})

func build(t *testing.T) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}

func compile(t *testing.T, arguments ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, arguments...), "./cmd")...).CombinedOutput()
	require.NoError(t, err, string(out))
}
