package docs_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateErrors = flag.Bool("update-errors", false, "write testdata/errors.txt: the texts of errors, by package")

// faulty are the packages whose errors users read.
var faulty = []string{
	"citus", "cluster", "cmd/gendurable", "dag", "dashboard", "durabletest", "engine", "entity", "entity/extension", "entpgx", "fsm",
	"internal/around", "internal/cron", "internal/pgdev", "internal/query", "internal/scaffold", "internal/send", "internal/shape", "internal/step", "internal/store",
	"internal/work", "migrate", "migrations", "signal", "telemetry", "vet",
}

// testdata/errors.txt lists the texts of all errors, so that a review sees each that is new or has
// changed. A text says what was done to what, why it was refused, and what to do, in the words of
// the API or of the command line.
func TestErrorsAreListed(t *testing.T) {
	t.Parallel()
	list := filepath.Join("testdata", "errors.txt")
	text := ""
	for _, folder := range faulty {
		texts := errorTexts(t, folder)
		require.True(t, len(texts) > 0 || folder == "entity" || folder == "telemetry", folder)
		for _, one := range texts {
			text += folder + ": " + one + "\n"
		}
	}
	if *updateErrors {
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
	}
	content, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, string(content), text, "texts of errors have changed: read them as a user, then go test ./docs -run TestErrorsAreListed -update-errors")
}

// errorTexts returns the texts of a package's errors, sorted: the texts that make an error, by
// errors.New, fmt.Errorf, the package's functions around them, the methods Error, and the literals
// of the package's types that have such a method.
func errorTexts(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	makers, types := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil && makes(n.Type, n.Body) {
					makers[n.Name.Name] = true
				}
				if n.Name.Name == "Error" && n.Recv != nil {
					types[typeName(n.Recv.List[0].Type)] = true
				}
			case *ast.AssignStmt:
				for i, value := range n.Rhs {
					if f, ok := value.(*ast.FuncLit); ok && makes(f.Type, f.Body) {
						if name, ok := n.Lhs[i].(*ast.Ident); ok {
							makers[name.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	found := map[string]bool{}
	note := func(n ast.Node, words bool) {
		for _, text := range literals(n) {
			if !words || strings.ContainsAny(text, " %") { // else the name of a field
				found[strconv.Quote(text)] = true
			}
		}
	}
	for _, file := range files {
		var function *ast.FuncDecl
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				function = n
				if n.Name.Name == "Error" && n.Recv != nil && n.Body != nil {
					note(n.Body, false)
				}
			case *ast.CompositeLit:
				if types[typeName(n.Type)] {
					note(n, true)
				}
			case *ast.CallExpr:
				switch {
				case !isMaker(n, makers):
				case !isMaker(n, nil):
					for _, argument := range n.Args {
						note(argument, true)
					}
				case len(literals(n.Args[0])) > 0:
					note(n.Args[0], false)
				case function != nil && !makers[function.Name.Name]:
					note(function.Body, true) // its text comes from a table
				}
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// typeName returns the name of a type of the package, or of a pointer to one, else "".
func typeName(of ast.Expr) string {
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// makes reports whether a function hands one of its parameters to errors.New or fmt.Errorf.
func makes(of *ast.FuncType, body *ast.BlockStmt) (is bool) {
	parameters := map[string]bool{}
	for _, field := range of.Params.List {
		for _, name := range field.Names {
			parameters[name.Name] = true
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && isMaker(call, nil) {
			if name, ok := call.Args[0].(*ast.Ident); ok && parameters[name.Name] {
				is = true
			}
		}
		return true
	})
	return is
}

// isMaker reports whether a call makes an error of a text.
func isMaker(call *ast.CallExpr, makers map[string]bool) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return makers[f.Name]
	case *ast.SelectorExpr:
		of, ok := f.X.(*ast.Ident)
		return ok && (of.Name == "errors" && f.Sel.Name == "New" || of.Name == "fmt" && f.Sel.Name == "Errorf") || makers[f.Sel.Name]
	}
	return false
}

// literals are the texts below a node that have a lower-case letter.
func literals(n ast.Node) (texts []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			if err == nil && strings.ContainsFunc(text, func(r rune) bool { return r >= 'a' && r <= 'z' }) {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}
