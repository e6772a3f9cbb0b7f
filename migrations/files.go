package migrations

import (
	"embed"
	"fmt"
	"io/fs"

	"ariga.io/atlas/sql/migrate"
)

// FS holds the migrations and their checksums in Atlas' format, as in this directory, and their
// inverses under down/.
//
//go:embed *.sql atlas.sum down/*.sql
var FS embed.FS

// directory reads the embedded migrations and verifies their checksums.
func directory() (*migrate.MemDir, error) {
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	dir := &migrate.MemDir{}
	for _, name := range append(names, migrate.HashFileName) {
		content, err := FS.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read migration %q: %w", name, err)
		}
		if err := dir.WriteFile(name, content); err != nil {
			return nil, fmt.Errorf("read migration %q: %w", name, err)
		}
	}
	if err := migrate.Validate(dir); err != nil {
		return nil, fmt.Errorf("verify migrations: %w", err)
	}
	return dir, nil
}

// Versions returns the versions of all migrations, oldest first.
func Versions() []string {
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return nil // only a malformed pattern fails
	}
	versions := make([]string, len(names))
	for i, name := range names {
		versions[i] = migrate.NewLocalFile(name, nil).Version()
	}
	return versions
}

// Latest returns the version that this program needs: that of the newest migration.
func Latest() string {
	versions := Versions()
	return versions[len(versions)-1]
}

// inverse returns the down file of a migration.
func inverse(file migrate.File) (*migrate.LocalFile, error) {
	content, err := FS.ReadFile("down/" + file.Name())
	if err != nil {
		return nil, fmt.Errorf("read the inverse of migration %q: %w", file.Name(), err)
	}
	return migrate.NewLocalFile(file.Name(), content), nil
}

// transactional reports whether a file is one transaction. A concurrent index build cannot be in
// one; its file says so.
func transactional(file migrate.File) bool {
	local, ok := file.(*migrate.LocalFile)
	if !ok {
		return true
	}
	mode := local.Directive("txmode")
	return len(mode) == 0 || mode[0] != "none"
}
