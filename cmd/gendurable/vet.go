package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/gendurable/gendurable/vet"
)

type vetCommand struct {
	Packages []string `arg:""         default:"./..."                                                    help:"Patterns of the go command." optional:""`
	Tests    bool     `default:"true" help:"Look at tests, too: on unless switched off, as go vet does." negatable:""`
}

func (*vetCommand) lasts() bool { return true }

// Run runs the command.
func (c *vetCommand) Run(ctx context.Context, a *app) error {
	found, err := vet.Look(ctx, vet.Options{Tests: c.Tests}, c.Packages...)
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if found == nil {
		found = []vet.Finding{}
	}
	for i, f := range found {
		if near, err := filepath.Rel(here, f.File); err == nil && !strings.HasPrefix(near, "..") {
			found[i].File = near
		}
	}
	if err := a.show(found, func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintf(w, "%s:%d:%d: %s\n", f.File, f.Line, f.Column, f.Message)
		}
	}); err != nil || len(found) == 0 {
		return err
	}
	return &exitError{code: codeUnmet}
}

// isVetTool reports whether "go vet -vettool" has started this program, which has its own
// protocol: -V=full, -flags, or flags and the file of a package.
func isVetTool(args []string) bool {
	if len(args) == 1 && slices.Contains([]string{"-V=full", "-flags"}, args[0]) {
		return true
	}
	return len(args) > 0 && strings.HasSuffix(args[len(args)-1], ".cfg") && !slices.ContainsFunc(args[:len(args)-1], func(s string) bool {
		return !strings.HasPrefix(s, "-")
	})
}

// serveVet looks at one package for the go command, and exits.
func serveVet() { unitchecker.Main(vet.Analyzer) }
