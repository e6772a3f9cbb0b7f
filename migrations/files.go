package migrations

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.sql atlas.sum down/*.sql
var files embed.FS

// FS holds the migrations and their checksums in Atlas' format, as in this directory, and their
// inverses under down/.
var FS Files = files

// Files is a file system of migrations.
type Files interface {
	fs.ReadDirFS
	fs.ReadFileFS
}

// Versions returns the versions of all migrations, oldest first.
func Versions() []string {
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return nil // only a malformed pattern fails
	}
	versions := make([]string, len(names))
	for i, name := range names {
		versions[i], _, _ = strings.Cut(name, "_")
	}
	return versions
}

// Latest returns the version that this program needs: the version of the newest migration.
func Latest() string {
	versions := Versions()
	return versions[len(versions)-1]
}
