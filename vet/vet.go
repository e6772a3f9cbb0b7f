// Package vet finds mistakes in the steps of machines that a compiler cannot see: a step that is
// not there, a change of the state that no outcome carries, an effect that a second run repeats.
// [Analyzer] is for any driver of golang.org/x/tools/go/analysis: the command "gendurable vet" and
// "go vet -vettool" run it, and golangci-lint can. The guide (docs/guide/vet.md) shows each rule
// with a program and its cure.
//
//	gendurable vet ./...                       // alone
//	go vet -vettool=$(which gendurable) ./...  // beside the analyzers of go vet
//
// A rule that cannot be sure is silent: it sees one package at a time, and what it does not see may
// be right. Nothing of this package is linked by a host: only the command line tool imports it.
package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Analyzer applies all rules. The category of a diagnostic is the name of its rule, with which its
// message begins.
var Analyzer = &analysis.Analyzer{
	Name: "gendurable",
	Doc:  "find mistakes in the steps of gendurable's machines\n\nThe rules are in docs/guide/vet.md. //gendurable:ignore rule why silences one for a line.",
	URL:  "https://github.com/gendurable/gendurable/blob/main/docs/guide/vet.md",
	Run:  run,
}

// Rule is a kind of finding.
type Rule struct {
	Name  string `json:"rule"` // the category of its diagnostics
	About string `json:"about"`

	look func(*unit)
}

// Rules returns the rules, in the order of the guide.
func Rules() []Rule {
	return []Rule{
		{"steps", "a step that is not there, that To does not allow, or to which nothing leads", steps},
		{"state", "a change of the state that no outcome carries", states},
		{"outcome", "an outcome beside an error, which the engine ignores", outcomes},
		{"effect", "an effect outside that a second run of the step repeats", effects},
		{"stored", "a state, result or payload that does not come back from JSON", stored},
		{"key", "a key that is another one in each run of the step", keys},
		{"unread", "a Done that deletes awaited signals unread", unread},
	}
}

const (
	module  = "github.com/gendurable/gendurable/"
	fsmPath = module + "fsm"
	dagPath = module + "dag"
)

// unit is one package that is looked at.
type unit struct {
	*analysis.Pass

	parents  map[ast.Node]ast.Node
	decls    map[*types.Func]*ast.FuncDecl
	uses     map[types.Object][]*ast.Ident // in the order of the files
	machines []*machine
	rule     string // that looks
	ignored  ignores
}

func run(pass *analysis.Pass) (any, error) {
	if !slices.ContainsFunc(pass.Pkg.Imports(), func(p *types.Package) bool { return p.Path() == fsmPath || p.Path() == dagPath }) {
		return nil, nil
	}
	u := &unit{Pass: pass, parents: map[ast.Node]ast.Node{}, decls: map[*types.Func]*ast.FuncDecl{}, uses: map[types.Object][]*ast.Ident{}}
	for _, file := range pass.Files {
		u.index(file)
	}
	u.readIgnores()
	u.findMachines()
	for _, r := range Rules() {
		u.rule = r.Name
		r.look(u)
	}
	return nil, nil
}

// index notes parents, functions and uses of a file.
func (u *unit) index(file *ast.File) {
	var above []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		if len(above) > 0 {
			u.parents[n] = above[len(above)-1]
		}
		above = append(above, n)
		switch n := n.(type) {
		case *ast.FuncDecl:
			if f, ok := u.TypesInfo.Defs[n.Name].(*types.Func); ok && n.Body != nil {
				u.decls[f] = n
			}
		case *ast.Ident:
			if o := u.TypesInfo.Uses[n]; o != nil {
				if f, ok := o.(*types.Func); ok {
					o = f.Origin()
				}
				u.uses[o] = append(u.uses[o], n)
			}
		}
		return true
	})
}

// found reports a finding of the rule that looks.
func (u *unit) found(at token.Pos, format string, a ...any) { u.report(u.rule, at, format, a...) }

func (u *unit) each(look func(ast.Node)) {
	for _, file := range u.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				look(n)
			}
			return true
		})
	}
}
