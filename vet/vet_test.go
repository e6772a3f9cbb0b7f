package vet_test

import (
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/packages"

	"github.com/gendurable/gendurable/internal/shape"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/vet"
	"github.com/gendurable/gendurable/vet/testdata/forms"
)

const root = ".."

// Each rule has a folder with bad programs, whose findings stand in comments, and good ones.
func TestRules(t *testing.T) {
	t.Parallel()
	folders := []string{"ignore"}
	for _, r := range vet.Rules() {
		folders = append(folders, r.Name)
	}
	patterns := make([]string, len(folders))
	for i, name := range folders {
		patterns[i] = "./vet/testdata/" + name
	}
	results := analysistest.Run(t, root, vet.Analyzer, patterns...)
	require.Len(t, results, len(folders))
	for _, result := range results {
		name := result.Pass.Pkg.Name()
		require.NotEmpty(t, result.Diagnostics, name)
		for _, d := range result.Diagnostics {
			if name != "ignore" {
				require.Equal(t, name, d.Category, d.Message)
			}
			require.True(t, strings.HasPrefix(d.Message, d.Category+": "), d.Message)
			file := filepath.Base(result.Pass.Fset.Position(d.Pos).Filename)
			require.NotEqual(t, "good.go", file, d.Message)
		}
	}
	found, err := os.ReadDir("testdata")
	require.NoError(t, err)
	require.Len(t, found, len(folders)+1, "a folder that no rule has") // forms
}

// spelling is all in which the texts may differ: paths of arguments of types, spaces in a struct.
var spelling = strings.NewReplacer("github.com/gendurable/gendurable/vet/testdata/", "", "struct { n int }", "struct{n int}")

// Both implementations of the rules of JSON say the same of each type.
func TestFormsAreTheSame(t *testing.T) {
	t.Parallel()
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadTypes, Dir: root}, "./vet/testdata/forms")
	require.NoError(t, err)
	require.Len(t, loaded, 1)
	require.Empty(t, loaded[0].Errors)
	all := loaded[0].Types.Scope().Lookup("All").Type().Underlying().(*types.Struct)
	faults := 0
	for i := range all.NumFields() {
		running := reflect.TypeFor[forms.All]().Field(i)
		require.Equal(t, running.Name, all.Field(i).Name())
		for _, addressable := range []bool{false, true} {
			want := shape.FormOf(shape.Of(running.Type), addressable)
			said := spelling.Replace(fmt.Sprint(want))
			require.Equal(t, said, fmt.Sprint(vet.FormOf(all.Field(i).Type(), addressable)), running.Type)
			if want.Lost != nil || want.Unread != nil {
				faults++
			}
		}
	}
	require.Greater(t, faults, 20, "types that come back say little")
}

// This repository has no findings. The other modules are as large as the tests of this one.
func TestNothingIsFoundHere(t *testing.T) {
	t.Parallel()
	found, err := vet.Look(t.Context(), vet.Options{Dir: root, Tests: tier.Pick(false, true)}, tier.Pick("./examples/...", "./..."))
	require.NoError(t, err)
	require.Empty(t, found)
	// What the benchmarks import takes minutes to compile.
	for _, module := range tier.Pick(nil, []string{"telemetry", "integration/hosts", "bench"}) {
		found, err := vet.Look(t.Context(), vet.Options{Dir: filepath.Join(root, module), Tests: true}, "./...")
		require.NoError(t, err, module)
		require.Empty(t, found, module)
	}
}

// A package that does not compile is not clean.
func TestPatternsThatMatchNothing(t *testing.T) {
	t.Parallel()
	_, err := vet.Look(t.Context(), vet.Options{Dir: root}, "./nowhere")
	require.Error(t, err)
	found, err := vet.Look(t.Context(), vet.Options{Dir: root}, "./vet/testdata/outcome", "./vet/testdata/key")
	require.NoError(t, err)
	require.Equal(t, "key", found[0].Rule)
	require.Equal(t, "outcome", found[len(found)-1].Rule)
	require.Equal(t, "bad.go", filepath.Base(found[0].File))
	require.Positive(t, found[0].Line*found[0].Column)
}
