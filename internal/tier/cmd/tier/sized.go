package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// asks is what a test calls to learn its tier.
const asks = "github.com/gendurable/gendurable/internal/tier"

// sized prints the arguments of go test that run every test which has another form in make ci than
// in make test: the packages, and a pattern of the tests' names. What runs alike in both has run in
// make test. It leaves out some packages.
func sized(w io.Writer, leftOut []string) error {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		return err
	}
	var paths, tests []string
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p struct {
			ImportPath   string   `json:"ImportPath"`
			Dir          string   `json:"Dir"`
			TestGoFiles  []string `json:"TestGoFiles"`
			XTestGoFiles []string `json:"XTestGoFiles"`
		}
		if err := decoder.Decode(&p); err != nil {
			return err
		}
		if slices.Contains(leftOut, p.ImportPath) {
			continue
		}
		found, err := testsThatAsk(p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles))
		if err != nil {
			return err
		}
		if len(found) > 0 {
			paths, tests = append(paths, p.ImportPath), append(tests, found...)
		}
	}
	if len(tests) == 0 {
		return errors.New("no test asks for its tier")
	}
	slices.Sort(tests)
	_, err = fmt.Fprintln(w, "-run", "^("+strings.Join(slices.Compact(tests), "|")+")$", strings.Join(paths, " "))
	return err
}

// testsThatAsk returns the tests and fuzz targets of a package's files that reach a call of package
// tier, or of [testing.Short], through the functions, methods and variables of these files. It goes
// by names alone, so it may return a test too many. If TestMain asks, all of them do.
func testsThatAsk(dir string, files []string) (tests []string, err error) {
	uses := map[string][]string{} // what is declared, to the names in it
	asking := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		imports := slices.ContainsFunc(parsed.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+asks+`"` })
		for _, d := range parsed.Decls {
			for _, name := range declared(d) {
				names, does := within(d, imports)
				uses[name] = append(uses[name], names...)
				asking[name] = asking[name] || does
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for name, names := range uses {
			if !asking[name] && slices.ContainsFunc(names, func(n string) bool { return asking[n] }) {
				asking[name], changed = true, true
			}
		}
	}
	for name := range uses {
		isTest := strings.HasPrefix(name, "Test") && name != "TestMain" || strings.HasPrefix(name, "Fuzz")
		if isTest && (asking[name] || asking["TestMain"]) {
			tests = append(tests, name)
		}
	}
	return tests, nil
}

// declared returns the names that a declaration declares.
func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		names = append(names, d.Name.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, is := spec.(*ast.ValueSpec); is {
				for _, name := range v.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// within returns the names in a declaration, and whether it asks for its tier itself.
func within(d ast.Decl, imports bool) (names []string, does bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is {
				does = does || imports && x.Name == "tier" || x.Name == "testing" && n.Sel.Name == "Short"
			}
		case *ast.Ident:
			names = append(names, n.Name)
		}
		return true
	})
	return names, does
}
