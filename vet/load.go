package vet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

// Finding is what a rule has found.
type Finding struct {
	Rule    string `json:"rule"`
	File    string `json:"file"` // the absolute path
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"` // begins with the rule
}

// Options say what Look looks at.
type Options struct {
	Dir   string   // where the go command runs; "": here
	Tests bool     // tests, too
	Env   []string // of the go command; nil: that of this process
}

// Look loads packages by patterns of the go command, which has to be there, and returns what the
// rules find in them, in the order of files and lines. A package that does not compile is an error.
func Look(ctx context.Context, o Options, patterns ...string) ([]Finding, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx, Mode: packages.LoadSyntax | packages.NeedModule, Dir: o.Dir, Env: o.Env, Tests: o.Tests,
	}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load %v: %w", patterns, err)
	}
	var wrong []error
	for _, p := range loaded {
		for _, e := range p.Errors {
			wrong = append(wrong, e)
		}
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{Analyzer}, loaded, nil)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, a := range graph.Roots {
		if a.Err != nil {
			return nil, fmt.Errorf("look at %s: %w", a.Package.ID, a.Err)
		}
		for _, d := range a.Diagnostics {
			at := a.Package.Fset.Position(d.Pos)
			all = append(all, Finding{Rule: d.Category, File: at.Filename, Line: at.Line, Column: at.Column, Message: d.Message})
		}
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(all), nil // a package and its tests have the same files
}
