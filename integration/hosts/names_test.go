package hosts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A type Message has the package message. Where what the extension generates uses a type's package,
// no name of a function's own may be one that a package can have: in small letters alone. The
// shortest names are ent's own, too.
func TestGeneratedNamesHideNoPackage(t *testing.T) {
	t.Parallel()
	ours := []string{"OnUpdate", "signalUpdated", "settleInstances", "ExecWith", "OnCreate", "SaveWith", "saveWith", "insertInstances", "upsertInstances", "WithInstance", "selectInstances", "loadInstances", "selectInstanceID"}
	inPlaceOf := map[string]string{"sqlSave": "sqlSaveAlone", "Save": "saveAlone", "check": "checkFields"} // ours, and ent's beside it
	entsOwn := []string{"_", "ctx", "err", "ok", "c", "s", "i", "u", "b", "m", "n"}
	files, err := filepath.Glob("ent/*_*.go")
	require.NoError(t, err)
	checked := map[string]bool{}
	for _, file := range files {
		pkg, _, _ := strings.Cut(filepath.Base(file), "_")
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		declares := func(name string) bool {
			return slices.ContainsFunc(parsed.Decls, func(d ast.Decl) bool {
				f, ok := d.(*ast.FuncDecl)
				return ok && f.Name.Name == name
			})
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !slices.Contains(ours, f.Name.Name) && !strings.HasPrefix(f.Name.Name, "durable") && !declares(inPlaceOf[f.Name.Name]) {
				continue
			}
			used, own := false, []string{}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok && of.Name == pkg {
						used = true
					}
				case *ast.Field:
					for _, name := range n.Names {
						own = append(own, name.Name)
					}
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
							own = append(own, name.Name)
						}
					}
				case *ast.RangeStmt:
					for _, e := range []ast.Expr{n.Key, n.Value} {
						if name, ok := e.(*ast.Ident); ok {
							own = append(own, name.Name)
						}
					}
				case *ast.ValueSpec:
					for _, name := range n.Names {
						own = append(own, name.Name)
					}
				}
				return true
			})
			if !used {
				continue
			}
			checked[f.Name.Name] = true
			for _, name := range own {
				hides := name == strings.ToLower(name) && !strings.HasPrefix(name, "_") && !slices.Contains(entsOwn, name)
				require.False(t, hides, "%s: %s has the name %s", file, f.Name.Name, name)
			}
		}
	}
	for _, name := range []string{"sqlSave", "signalUpdated", "settleInstances", "insertInstances", "upsertInstances", "selectInstanceID", "selectInstances", "durableTicketConflict"} {
		require.True(t, checked[name], name)
	}
}
