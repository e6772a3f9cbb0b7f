package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// files is a repository as the check needs it: two modules.
func files(exported string) map[string]string {
	return map[string]string{
		"go.mod": "module example.com/one\n\ngo 1.26\n", "one.go": "package one\n\n" + exported + "\n",
		"internal/hidden/hidden.go": "package hidden\n\n" + exported + "\n",
		"telemetry/go.mod":          "module example.com/one/telemetry\n\ngo 1.26\n", "telemetry/two.go": "package telemetry\n",
	}
}

func commit(t *testing.T, root string, tree map[string]string, tag string) {
	t.Helper()
	for name, text := range tree {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{
		{"init", "-q"}, {"add", "."},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-qm", "x"}, {"tag", tag},
	} {
		git := exec.CommandContext(t.Context(), "git", arguments...)
		git.Dir = root
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
}

// A patch keeps what programs use, a minor version says what it breaks.
func TestExportedNamesStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then, now, version string
		broken, says       string
	}{
		"more names":         {"func A(int) {}", "func A(int) {}\n\nfunc B() {}", "v0.1.1", "", "compile with"},
		"a name is gone":     {"func A(int) {}", "", "v0.1.1", "A: removed", ""},
		"another type":       {"func A(int) {}", "func A(string) {}", "v0.1.1", "A: changed", ""},
		"in a minor version": {"func A(int) {}", "", "v0.2.0", "", "may not compile"},
		"the first version":  {"func A(int) {}", "", "v0.0.1", "", "no release before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, tree := t.TempDir(), t.TempDir()
			commit(t, root, files(c.then), "v0.1.0")
			for file, text := range files(c.now) {
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(tree, file)), 0o755),
					os.WriteFile(filepath.Join(tree, file), []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			says, err := compatible(t.Context(), root, tree, t.TempDir(), c.version)
			broken, refused := errors.AsType[*IncompatibleError](err)
			switch {
			case c.broken == "" && err != nil:
				t.Fatal(err)
			case c.broken != "" && (!refused || !strings.Contains(strings.Join(broken.Changes, " "), c.broken)):
				t.Fatalf("%q is not refused: %v", c.broken, err)
			case !strings.Contains(says, c.says):
				t.Fatalf("it says %q, not %q", says, c.says)
			case refused && len(broken.Changes) != 1:
				t.Fatalf("a package of internal counts: %q", broken.Changes)
			}
		})
	}
}
