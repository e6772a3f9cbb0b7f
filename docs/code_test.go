package docs_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis"

	"github.com/gendurable/gendurable/vet"
)

// fragment marks in a frame where the block goes.
const fragment = "//fragment\n"

// A Go block is a complete file, or a fragment with a comment above it that names its frame in
// testdata/frames: the file around it. Unused variables and imports are a fragment's right. Or it
// is a file of the repository, whose comment says which: all of it, or all after the imports.
func TestGoCompiles(t *testing.T) {
	t.Parallel()
	packages := compiled(t)
	for _, p := range pages(t) {
		for i, b := range p.blocks {
			if b.language != "go" {
				continue
			}
			want := ""
			if p.path == vetPage && i+1 < len(p.blocks) && findings.MatchString(p.blocks[i+1].text) {
				want = p.blocks[i+1].text
			}
			t.Run(fmt.Sprintf("%s:%d", p.path, b.line), func(t *testing.T) {
				formatted, err := format.Source([]byte(b.text))
				require.NoError(t, err)
				require.Equal(t, string(formatted), b.text, "not formatted")
				if b.file != "" {
					want := codeOf(t, b.file)
					if strings.HasPrefix(b.text, "package ") || strings.HasPrefix(b.text, "// Package ") {
						want = wholeOf(t, b.file)
					}
					require.Equal(t, want, b.text, "not what the file says")
					return
				}
				found, err := check(packages, framed(t, b), b.frame != "")
				require.NoError(t, err)
				require.Equal(t, want, found, "what gendurable vet finds in it")
			})
		}
	}
}

// codeOf returns the code behind the imports of a file.
func codeOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	require.NoError(t, err)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ImportsOnly)
	require.NoError(t, err)
	end := file.Name.End()
	if len(file.Decls) > 0 {
		end = file.Decls[len(file.Decls)-1].End()
	}
	return strings.TrimLeft(string(text[files.Position(end).Offset:]), "\n")
}

// wholeOf is a file. A file of the host that the tests have is shown as a file of a shop.
func wholeOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	require.NoError(t, err)
	shown := bytes.ReplaceAll(text, []byte("github.com/gendurable/gendurable/integration/hosts"), []byte("example.com/shop"))
	shown, err = format.Source(shown)
	require.NoError(t, err)
	return string(shown)
}

// framed is a block as a file.
func framed(t *testing.T, b block) string {
	t.Helper()
	if strings.HasPrefix(b.text, "package ") || strings.HasPrefix(b.text, "// Package ") {
		require.Empty(t, b.frame, "a complete file needs no frame")
		return b.text
	}
	require.NotEmpty(t, b.frame, "neither a complete file nor in a frame")
	frame, err := os.ReadFile(filepath.Join("testdata", "frames", b.frame+".txt"))
	require.NoError(t, err)
	before, after, found := strings.Cut(string(frame), fragment)
	require.True(t, found, "frame %s does not say where the block goes", b.frame)
	return before + b.text + after
}

const vetPage = "docs/guide/vet.md"

var findings = regexp.MustCompile(`^[a-z]+: `)

// check type-checks a file, and returns what gendurable vet finds in it, a line each.
func check(packages types.Importer, text string, isFragment bool) (found string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "block.go", text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return "", err
	}
	var wrong []error
	config := types.Config{Importer: packages, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); !ok || !e.Soft || !isFragment {
			wrong = append(wrong, err)
		}
	}}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Instances: map[*ast.Ident]types.Instance{},
		Implicits: map[ast.Node]types.Object{}, Scopes: map[ast.Node]*types.Scope{},
	}
	pkg, _ := config.Check("block", files, []*ast.File{file}, info) // its first error is in wrong
	if wrong != nil {
		return "", errors.Join(wrong...)
	}
	var all []analysis.Diagnostic
	_, err = vet.Analyzer.Run(&analysis.Pass{
		Analyzer: vet.Analyzer, Fset: files, Files: []*ast.File{file}, Pkg: pkg, TypesInfo: info,
		Report: func(d analysis.Diagnostic) { all = append(all, d) },
	})
	slices.SortFunc(all, func(a, b analysis.Diagnostic) int { return cmp.Compare(a.Pos, b.Pos) })
	for _, d := range all {
		found += d.Message + "\n"
	}
	return found, err
}

// compiled imports what the blocks may use, from the go command's cache.
func compiled(t *testing.T) types.Importer {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export",
		"./citus", "./cluster", "./engine", "./dag", "./dashboard", "./migrate", "./migrations", "./durabletest", "./health", "./ent/...", "./entity/...", "net/http", "os/signal")
	command.Dir = root
	var complaints bytes.Buffer
	command.Stderr = &complaints
	listing, err := command.Output()
	require.NoError(t, err, complaints.String())
	export := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(listing)); ; {
		var p struct {
			ImportPath string `json:"ImportPath"`
			Export     string `json:"Export"`
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		export[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		file, ok := export[path]
		if !ok {
			return nil, fmt.Errorf("package %q is not used in this module", path)
		}
		return os.Open(file)
	})
}
