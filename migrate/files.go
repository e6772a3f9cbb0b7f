package migrate

import (
	"fmt"
	"io/fs"

	atlas "ariga.io/atlas/sql/migrate"

	"github.com/gendurable/gendurable/migrations"
)

// directory reads the embedded migrations and verifies their checksums.
func directory() (*atlas.MemDir, error) {
	names, err := fs.Glob(migrations.FS(), "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	dir := &atlas.MemDir{}
	for _, name := range append(names, atlas.HashFileName) {
		content, err := migrations.FS().ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read migration %q: %w", name, err)
		}
		if err := dir.WriteFile(name, content); err != nil {
			return nil, fmt.Errorf("read migration %q: %w", name, err)
		}
	}
	if err := atlas.Validate(dir); err != nil {
		return nil, fmt.Errorf("verify migrations: %w", err)
	}
	return dir, nil
}

// inverse returns the down file of a migration.
func inverse(file atlas.File) (*atlas.LocalFile, error) {
	content, err := migrations.FS().ReadFile("down/" + file.Name())
	if err != nil {
		return nil, fmt.Errorf("read the inverse of migration %q: %w", file.Name(), err)
	}
	return atlas.NewLocalFile(file.Name(), content), nil
}

// transactional reports whether a file is one transaction. A concurrent index build cannot be in
// one; its file says so.
func transactional(file atlas.File) bool {
	local, ok := file.(*atlas.LocalFile)
	if !ok {
		return true
	}
	mode := local.Directive("txmode")
	return len(mode) == 0 || mode[0] != "none"
}
