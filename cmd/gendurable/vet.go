package main

import (
	"context"
	"encoding/json"
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
func serveVet(args []string) error {
	if done, err := passOver(args[len(args)-1]); done || err != nil {
		return err
	}
	unitchecker.Main(vet.Analyzer)
	return nil
}

// passOver reports whether the go command wants only the facts of a package, as it does for each
// package that another one imports, the standard library's too. The analyzer has none, so it says
// so without loading the package, which takes unitchecker a minute for all imports of a machine.
func passOver(file string) (bool, error) {
	if !strings.HasSuffix(file, ".cfg") {
		return false, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the go command names it
	if err != nil {
		return false, fmt.Errorf("read the configuration from go vet: %w", err)
	}
	var config unitchecker.Config
	if err := json.Unmarshal(text, &config); err != nil {
		return false, fmt.Errorf("read the configuration %s from go vet: %w", file, err)
	}
	if !config.VetxOnly || len(vet.Analyzer.FactTypes)+len(vet.Analyzer.Requires) > 0 {
		return false, nil
	}
	if config.VetxOutput == "" {
		return true, nil
	}
	if err := os.WriteFile(config.VetxOutput, nil, 0o600); err != nil {
		return true, fmt.Errorf("write the file of facts for go vet: %w", err)
	}
	return true, nil
}
