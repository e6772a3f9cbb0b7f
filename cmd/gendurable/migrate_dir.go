package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"

	"github.com/gendurable/gendurable/migrations"
)

type migrateDir struct {
	Dir     string `arg:""              default:"migrations/gendurable"                               help:"The folder." optional:""`
	Project string `default:"atlas.hcl" help:"Atlas' project file; it is not touched if it is there." placeholder:"FILE"`
}

// written is the result of dir.
type written struct {
	Dir     string   `json:"dir"`
	Files   []string `json:"files"`   // that are new, or have changed
	Project string   `json:"project"` // Atlas' project file, "" where the host has one
}

//go:embed atlas.hcl.tmpl
var projectText string

// Run runs the command.
func (c *migrateDir) Run(a *app) error {
	out := written{Dir: filepath.ToSlash(filepath.Clean(c.Dir)), Files: []string{}}
	names, err := fs.Glob(migrations.FS(), "*.*")
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	// Files that are there have to be of an earlier release. So all files are looked at before any is
	// written.
	contents := map[string][]byte{}
	for _, name := range names {
		if contents[name], err = migrations.FS().ReadFile(name); err != nil {
			return fmt.Errorf("read migration %q: %w", name, err)
		}
		is, err := os.ReadFile(filepath.Join(c.Dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			out.Files = append(out.Files, name)
		case err != nil:
			return err
		case bytes.Equal(is, contents[name]):
		case name == "atlas.sum":
			out.Files = append(out.Files, name)
		default:
			return usagef("%s is not what this release has: a migration never changes; is this another folder?", filepath.Join(c.Dir, name))
		}
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // a folder of a repository
		return err
	}
	for _, name := range out.Files {
		if err := os.WriteFile(filepath.Join(c.Dir, name), contents[name], 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	project, err := c.project(a.Schema)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.Project, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as above
	switch {
	case err == nil:
		out.Project = c.Project
		_, err = file.Write(project)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	there, err := os.ReadFile(c.Project)
	if err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d files are new or have changed\n", out.Dir, len(out.Files))
		if !bytes.Contains(there, bytes.TrimSpace(project)) {
			fmt.Fprintf(w, "%s is yours; it needs this, unless it has it already:\n\n%s\n", c.Project, project)
		}
		fmt.Fprintln(w, "DATABASE_URL=postgres://… atlas migrate apply --env gendurable")
	})
}

// project is a project file of Atlas, which takes paths from the folder of that file.
func (c *migrateDir) project(schema string) ([]byte, error) {
	dir, err := filepath.Rel(filepath.Dir(c.Project), c.Dir)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New("project").Parse(projectText)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, map[string]string{"Schema": schema, "Dir": filepath.ToSlash(dir)})
	return text.Bytes(), err
}
