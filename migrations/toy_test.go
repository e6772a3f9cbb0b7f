package migrations_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	atlas "ariga.io/atlas/sql/migrate"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrations"
)

// Only the base is there. So that the runner has something to do on a live database, the tests of
// this package let it find files of testdata/toy behind the base: one in a transaction, and one
// that builds an index concurrently.
const (
	base          = "20261126000000"
	beforeIndexes = "20991231000000"
	firstIndex    = "20991231000100"

	firstIndexName = "gen_durable_toy"
	firstIndexDef  = "CREATE INDEX gen_durable_toy ON gen_durable USING btree (toy) WHERE (toy IS NOT NULL)"
)

func TestMain(m *testing.M) {
	if err := addToys(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pgtest.NoLeaks(m)
}

// toyDir returns a folder of all migrations, the toys included, for the CLI.
func toyDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, migrations.FS()))
	return dir
}

// addToys lets the library find the toys.
func addToys() error {
	all := fstest.MapFS{}
	for _, from := range []fs.FS{migrations.FS(), os.DirFS(filepath.Join("testdata", "toy"))} {
		err := fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(from, path)
			all[path] = &fstest.MapFile{Data: content}
			return err
		})
		if err != nil {
			return err
		}
	}
	up := &atlas.MemDir{}
	names, err := fs.Glob(all, "*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := up.WriteFile(name, all[name].Data); err != nil {
			return err
		}
	}
	sum, err := up.Checksum()
	if err != nil {
		return err
	}
	text, err := sum.MarshalText()
	if err != nil {
		return err
	}
	all[atlas.HashFileName] = &fstest.MapFile{Data: text}
	migrations.Use(all, string(text))
	return nil
}
