package migrations

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.sql atlas.sum down/*.sql
var embedded embed.FS

// The tests put a toy beside them.
var (
	files = func() Files { return embedded }
	//go:embed atlas.sum
	sums string
)

// FS returns the migrations and their checksums in Atlas' format, as in this directory, and their
// inverses under down/. It is a function, so that a host that does not call it links none of them.
func FS() Files { return files() }

// Files is a file system of migrations.
type Files interface {
	fs.ReadDirFS
	fs.ReadFileFS
}

// Versions returns the versions of all migrations, oldest first. It has them from the checksums and
// not from [FS], which every host would then link.
func Versions() (versions []string) {
	for line := range strings.Lines(sums) {
		if version, _, is := strings.Cut(line, "_"); is { // the first line is the sum of all files
			versions = append(versions, version)
		}
	}
	return versions
}

// Latest returns the version that this program needs: the version of the newest migration.
func Latest() string {
	versions := Versions()
	return versions[len(versions)-1]
}
