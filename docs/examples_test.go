package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every package for hosts has examples. Those that need what no test has at hand, a Citus or a
// collector of metrics, are only compiled; of each other package some run and print what they say.
func TestPackagesHaveExamples(t *testing.T) {
	t.Parallel()
	for folder, run := range map[string]bool{
		"citus": false, "cluster": true, "dag": true, "dashboard": true, "durabletest": true, "engine": true, "entity": true,
		"entpgx": true, "fsm": true, "migrate": true, "signal": true, "telemetry": false, "worker": true,
	} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		require.NoError(t, err)
		parsed := make([]*ast.File, len(files))
		for i, file := range files {
			parsed[i], err = parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			require.NoError(t, err)
		}
		examples := doc.Examples(parsed...)
		require.NotEmpty(t, examples, folder)
		runs := 0
		for _, e := range examples {
			if e.Output != "" {
				runs++
			}
		}
		require.Equal(t, run, runs > 0, "%s: of %d examples %d run", folder, len(examples), runs)
	}
}

// The documentation of a package for hosts begins with a program: nothing but a few lines that say
// what the package is for stands before it.
func TestPackagesBeginWithAProgram(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{
		"citus", "cluster", "dag", "dashboard", "durabletest", "engine", "ent", "entity", "entity/extension", "entpgx", "fsm", "migrate", "migrations",
		"signal", "telemetry", "vet", "worker",
	} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
		require.NoError(t, err)
		text := ""
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			require.NoError(t, err)
			text += parsed.Doc.Text()
		}
		before, _, found := strings.Cut(text, "\n\t")
		require.True(t, found, "the documentation of package %s has no program", folder)
		require.LessOrEqual(t, strings.Count(before, "\n"), 8, "the program of package %s is not at the beginning", folder)
	}
}
