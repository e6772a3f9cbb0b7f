// Package scaffold writes the package of a machine that takes the place of a status column: a step
// for each value of an enum field of an ent schema, the transitions that the caller names, a test
// of each of them, and a function that gives live rows their instances. Only the command line tool
// uses it: the host's schema is compiled, and the written files belong to the host.
package scaffold

import (
	"errors"
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// Column is an enum field of an ent schema.
type Column struct {
	Entity  string   // the schema's name
	Field   string   // as the schema names it
	Values  []string // in the schema's order
	Default string   // "": none
	Client  string   // the import path of the host's client
	Machine string   // that the schema's mixin names; "": it has no mixin
	ID      Type
	Type    Type // of the field; zero: ent generates it
}

// Type is a Go type.
type Type struct {
	Name string // with its package, e.g. uuid.UUID
	Path string // of the package; "": the type needs no import
}

// Choice says which machine is to be written.
type Choice struct {
	Machine     string   // its durable name; "": as the schema's mixin says, else the entity's name
	Initial     string   // the status of new rows; "": the field's default, or the status that no transition leads to
	Transitions []string // each as FROM:TO,TO
	Waits       []string // the statuses that a signal ends
}

// Error is a fault of what the caller has asked for.
type Error struct {
	Field string // the argument or flag
	Err   error
}

func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the fault.
func (e *Error) Unwrap() error { return e.Err }

func wrong(field, format string, args ...any) error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}

// PackageOf returns the name of the package in a folder, which must have no Go files.
func PackageOf(folder string) (string, error) {
	full, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	name := strings.NewReplacer("-", "", ".", "").Replace(strings.ToLower(filepath.Base(full)))
	if !token.IsIdentifier(name) || name == "main" || strings.HasSuffix(name, "_test") {
		return "", wrong("--into", "%q is no name of a Go package that others import: name another folder", filepath.Base(full))
	}
	return name, vacant(folder)
}

// vacant refuses a folder that has Go files.
func vacant(folder string) error {
	there, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return wrong("--into", "%s is there already, and nothing is overwritten: name another folder", there[0])
	}
	return nil
}

// Write writes the files of a plan into a folder, which need not exist, and returns their paths. It
// overwrites nothing: a folder that has Go files is refused.
func (p *Plan) Write(folder string) ([]string, error) {
	files, err := p.Files()
	if err != nil {
		return nil, err
	}
	if err := vacant(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of a repository
		return nil, err
	}
	var written []string
	for _, f := range files {
		path := filepath.Join(folder, f.Name)
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as above
		if err != nil {
			return written, err
		}
		_, err = file.Write(f.Text)
		if err := errors.Join(err, file.Close()); err != nil {
			return written, err
		}
		written = append(written, filepath.ToSlash(path))
	}
	return written, nil
}
