package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/gendurable/gendurable/vet"
)

const wrongCode = "../../vet/testdata/outcome"

// The command needs no database, and its exit code says whether it has found anything.
func TestVet(t *testing.T) {
	t.Parallel()
	h := &host{t: t}
	found := read[[]vet.Finding](h.in("vet", wrongCode, "--json").is(codeUnmet))
	require.Greater(t, len(found), 5)
	require.Equal(t, "outcome", found[0].Rule)
	require.Contains(t, h.in("vet", wrongCode).is(codeUnmet).out, found[0].File+":24:3: outcome: the engine ignores an outcome beside an error")
	require.Equal(t, "[]\n", h.in("vet", "--json", "--no-tests", "../../examples/recipes").is(codeDone).out)
	require.Contains(t, h.in("vet", "./nowhere").is(codeError).errs, "nowhere")
}

// The go command runs this program as its own analyzer, by a protocol that has no nouns.
func TestVetTool(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+self, wrongCode)
	command.Env = append(os.Environ(), playVariable+"=1")
	out, err := command.CombinedOutput()
	require.Error(t, err, "it has found something")
	require.Contains(t, string(out), "bad.go:24:3: outcome: the engine ignores an outcome beside an error")
	require.NotContains(t, string(out), "good.go")

	for args, is := range map[string]bool{"-V=full": true, "-flags": true, "b001/vet.cfg": true, "version": false, "": false} {
		require.Equal(t, is, isVetTool([]string{args}), args)
	}
	require.True(t, isVetTool([]string{"-json", "b001/vet.cfg"}))
	require.False(t, isVetTool([]string{"migrate", "dir", "a.cfg"}))
	require.False(t, isVetTool(nil))
}

// The go command asks for the facts of each package that is imported. There are none, so no source
// of these packages is read.
func TestVetToolLoadsNothingForFacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(config unitchecker.Config) string {
		text, err := json.Marshal(config)
		require.NoError(t, err)
		file := filepath.Join(dir, "vet.cfg")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	facts := filepath.Join(dir, "facts")
	done, err := passOver(write(unitchecker.Config{VetxOnly: true, VetxOutput: facts, GoFiles: []string{"missing.go"}}))
	require.NoError(t, err)
	require.True(t, done)
	content, err := os.ReadFile(facts)
	require.NoError(t, err)
	require.Empty(t, content)

	done, err = passOver(write(unitchecker.Config{VetxOutput: facts}))
	require.NoError(t, err)
	require.False(t, done, "this package itself is to be looked at")
	done, err = passOver("-V=full")
	require.NoError(t, err)
	require.False(t, done)
	_, err = passOver(filepath.Join(dir, "missing.cfg"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
