package pgdev

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveArchive makes the tests' registry serve an archive of these files. If known is true, its
// checksum is among the known ones.
func serveArchive(t *testing.T, known bool, content map[string]string) (asked *string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("no Node: npm is missing")
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	for name, text := range content {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: "package/" + name, Size: int64(len(text)), Mode: 0o755}
		require.NoError(t, files.WriteHeader(header))
		_, err := files.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, files.Close())
	require.NoError(t, zipped.Close())
	asked = new(string)
	name, version := "@embedded-postgres/"+platform(), archives[NewestMajor].version
	integrity := sha512.Sum512(packed.Bytes())
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if *asked = r.URL.Path; strings.HasSuffix(r.URL.Path, ".tgz") {
			_, _ = w.Write(packed.Bytes())
			return
		}
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{
			"name": name, "dist-tags": map[string]string{"latest": version},
			"versions": map[string]any{version: map[string]any{"name": name, "version": version, "dist": map[string]string{
				"tarball":   "http://" + r.Host + "/archive.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(integrity[:]),
			}}},
		}))
	}))
	t.Cleanup(registry.Close)
	t.Setenv("npm_config_registry", registry.URL+"/")
	t.Setenv("npm_config_cache", t.TempDir())
	sum := sha512.Sum512(packed.Bytes())
	if !known {
		sum[0]++
	}
	theirs := archives[NewestMajor]
	t.Cleanup(func() { archives[NewestMajor] = theirs })
	ours := theirs
	ours.sums = map[string]string{platform(): base64.StdEncoding.EncodeToString(sum[:])}
	archives[NewestMajor] = ours
	return asked
}

func TestFetch(t *testing.T) {
	asked := serveArchive(t, true, map[string]string{
		"native/bin/initdb": "the program initdb", "native/bin/postgres": "the program postgres", "README.md": "no part of it",
		"native/lib/libpq.so.5.18": "a library",
		"native/pg-symlinks.json":  `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so"}]`,
	})
	dir := filepath.Join(t.TempDir(), "deep", "postgres-18")
	require.NoError(t, Fetch(t.Context(), NewestMajor, dir))
	require.Equal(t, "/archive.tgz", *asked)
	require.True(t, holdsServer(filepath.Join(dir, "bin")))
	library, err := os.ReadFile(filepath.Join(dir, "lib", "libpq.so"))
	require.NoError(t, err)
	require.Equal(t, "a library", string(library))
	require.NoFileExists(t, filepath.Join(dir, "README.md"))
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing is left of the way there")

	*asked = ""
	require.NoError(t, Fetch(t.Context(), NewestMajor, dir))
	require.Empty(t, *asked, "it was there already")
}

func TestFetchRefusesWhatItDoesNotKnow(t *testing.T) {
	serveArchive(t, false, map[string]string{"native/bin/initdb": "evil", "native/bin/postgres": "evil"})
	dir := t.TempDir()
	err := Fetch(t.Context(), NewestMajor, filepath.Join(dir, "postgres"))
	require.ErrorContains(t, err, "checksum")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.ErrorContains(t, Fetch(t.Context(), 9, dir), "no Postgres 9 to fetch for "+runtime.GOOS)
}

func TestFetchLeavesItsDirectoryNowhere(t *testing.T) {
	for _, content := range []map[string]string{
		{"native/../../outside": "evil"},
		{"native/pg-symlinks.json": `[{"source":"native/a","target":"native/../../outside"}]`},
	} {
		serveArchive(t, true, content)
		parent := t.TempDir()
		require.Error(t, Fetch(t.Context(), NewestMajor, filepath.Join(parent, "postgres")))
		require.NoFileExists(t, filepath.Join(parent, "outside"))
	}
}
