package fsm_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The types refuse some programs and accept the others, T97 among them.
func TestCompiles(t *testing.T) {
	t.Parallel()
	check := typeChecker(t)
	for name, c := range map[string]struct{ code, says string }{
		"right": {`func f(_ context.Context, v *V) (fsm.Outcome, error) { return v.Next("a", "state").After(1), nil }
			var d fsm.Definition = M.Define(fsm.Step("start", f).To("start").Timeout(1)).Retry(fsm.RetryPolicy{})`, ""},
		"package-level recursion": {`var A = fsm.Declare[string, int]("a")
			var B = fsm.Declare[string, int]("b")
			var ds = []fsm.Definition{A.Define(fsm.Step("start", a)), B.Define(fsm.Step("start", b))}
			func a(_ context.Context, v *V) (fsm.Outcome, error) { return v.ScheduleChildren("start", "", A.New(""), B.New("")), nil }
			func b(_ context.Context, v *V) (fsm.Outcome, error) { return v.ScheduleChildren("start", "", A.New("")), nil }`, ""},
		"wrong result":       {`func f(v *V) fsm.Outcome { return v.Done("text") }`, "cannot use"},
		"wrong state":        {`func f(v *V) fsm.Outcome { return v.Next("a", 5) }`, "cannot use"},
		"wrong state, await": {`func f(v *V) fsm.Outcome { return v.Await("a", 5) }`, "cannot use"},
		"wrong state, retry": {`func f(v *V) fsm.Outcome { return v.Retry(5, 0) }`, "cannot use"},
		"wrong new":          {`var s = M.New(5)`, "cannot use"},
		"wrong payload":      {`var m = fsm.DeclareSignal[int]("s").With("x")`, "cannot use"},
		"another's step": {`func f(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return nil, nil }
			var d = M.Define(fsm.Step("start", f))`, "cannot use"},
		"another's handler": {`func h(_ context.Context, v *fsm.Visit[int, int], err error) (fsm.Outcome, error) { return nil, nil }
			var d = M.Define().OnError(h)`, "cannot use"},
		"another's job":   {`var d = M.Job(func(context.Context, int) (int, error) { return 0, nil })`, "cannot use"},
		"timeout on done": {`func f(v *V) fsm.Outcome { return v.Done(1).Timeout(1) }`, "undefined"},
		"timeout on next": {`func f(v *V) fsm.Outcome { return v.Next("a", "").Timeout(1) }`, "undefined"},
		"order's id":      {`var order int64; var t fsm.Target = order`, "does not implement"},
		"own target": {`type mine int
			var t fsm.Target = mine(1)`, "missing method target"},
		"own signal": {`type mine struct{}
			func (mine) Name() string { return "x" }
			func f(v *V) fsm.Outcome { return v.Await("a", "", mine{}) }`, "missing method signal"},
		"own visit": {`type mine struct{}
			var x fsm.AnyVisit = mine{}`, "missing method execution"},
		"own outcome": {`type mine struct{}
			func (mine) erase() {}
			var x fsm.Outcome = mine{}`, "unexported method erase"},
		"own definition": {`type mine struct{}
			func (mine) erase() {}
			var x fsm.Definition = mine{}`, "unexported method erase"},
		"untyped nil step": {`var _ = M.Define(fsm.Step("start", nil))`, "cannot infer"},
	} {
		err := check(`package host
			import ("context"; "github.com/gendurable/gendurable/fsm")
			var _ context.Context
			var M = fsm.Declare[string, int]("m")
			type V = fsm.Visit[string, int]
			` + c.code)
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.says, name)
	}
}

// typeChecker checks a file as a separate package, against the compiled packages.
func typeChecker(t *testing.T) func(code string) error {
	t.Helper()
	exports := compiledPackages(t)
	files := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	return func(code string) error {
		file, err := parser.ParseFile(files, "host.go", code, 0)
		if err != nil {
			return err
		}
		_, err = config.Check("host", files, []*ast.File{file}, nil)
		return err
	}
}

// compiledPackages returns the files of this package and of all that it imports, by their paths.
func compiledPackages(t *testing.T) map[string]string {
	t.Helper()
	var failed strings.Builder
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".")
	list.Stderr = &failed
	out, err := list.Output()
	require.NoError(t, err, failed.String())
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return files
}

// The compiler makes a copy of each method of Machine, Visit and Defined for the types of each
// machine of a host: it spends half a second on one machine if these methods do by themselves what
// needs no types. So generic functions leave that to others. Sizes are the same each time, and
// times are not.
func TestAMachineIsQuicklyCompiled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var packages strings.Builder
	for path, file := range compiledPackages(t) {
		if file != "" {
			fmt.Fprintf(&packages, "packagefile %s=%s\n", path, file)
		}
	}
	imports := filepath.Join(dir, "imports")
	require.NoError(t, os.WriteFile(imports, []byte(packages.String()), 0o600))
	size := func(machines int) int64 {
		var host strings.Builder
		host.WriteString("package host\nimport (\"context\"; \"github.com/gendurable/gendurable/fsm\")\n")
		for i := range machines {
			host.WriteString(strings.ReplaceAll(`
				type S# struct { Name string; Count# int }
				var M# = fsm.Declare[S#, int64]("m#")
				var D# = M#.Define(fsm.Step("start", start#).To("end"), fsm.Step("end", end#))
				func start#(_ context.Context, v *fsm.Visit[S#, int64]) (fsm.Outcome, error) { return v.Next("end", v.State), nil }
				func end#(_ context.Context, v *fsm.Visit[S#, int64]) (fsm.Outcome, error) { return v.Done(1), nil }`, "#", strconv.Itoa(i)))
		}
		source, object := filepath.Join(dir, "host.go"), filepath.Join(dir, "host.a")
		require.NoError(t, os.WriteFile(source, []byte(host.String()), 0o600))
		out, err := exec.CommandContext(t.Context(), "go", "tool", "compile", "-p", "host", "-importcfg", imports, "-o", object, source).CombinedOutput() //nolint:gosec // of this test
		require.NoError(t, err, string(out))
		info, err := os.Stat(object)
		require.NoError(t, err)
		return info.Size()
	}
	each := (size(5) - size(1)) / 4
	t.Logf("a machine compiles to %d bytes", each)
	require.Less(t, each, int64(750_000))
}
