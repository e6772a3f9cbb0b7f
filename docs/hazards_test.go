package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// hazardEntry is a hazard of docs/hazards.txt, with its cure and its proof.
	hazardEntry = regexp.MustCompile(`^T(\d+): \S.*\.\n    cure: \S.*\.\n    proof: (.+)$`)
	// holdRow lists locks that the tests hold, and the work that may wait for them.
	holdRow = regexp.MustCompile(`^- ([^:*]+): \*[^*]+\*$`)
	// proof is one thing that a line names: a test, a mutant of a suite, a check.
	proof = regexp.MustCompile(`^(?:((?:Test|Fuzz)\w+)|(interleave|model) "([^"]+)"|soak (\w+))$`)
)

// Each hazard names tests which fail without its cure, and exist; or the entry says why the hazard
// does not apply.
func TestEveryHazardIsProven(t *testing.T) {
	t.Parallel()
	_, tests := tree(t)
	known := map[string]map[string]bool{
		"interleave": listed(t, `(?m)^\t\{"([^"]+)", "\w[^"]*/[^"]+",`, "integration", "interleave", "*mutant*_test.go"),
		"model":      listed(t, `(?m)^\t\{"([^"]+)", "\w+\.go",`, "integration", "model", "*mutants_test.go"),
		"soak":       listed(t, `CREATE VIEW soak\.check_(\w+) AS`, "integration", "soak", "checks.sql"),
	}
	for i, entry := range hazards(t) {
		number := i + 1
		m := hazardEntry.FindStringSubmatch(entry)
		require.NotNil(t, m, "want a hazard, its cure and its proof: %s", entry)
		require.Equal(t, strconv.Itoa(number), m[1], "want the next number: %s", entry)
		if reason, ok := strings.CutPrefix(m[2], "does not apply: "); ok {
			require.NotEmpty(t, strings.TrimSpace(reason), "T%d: why?", number)
			continue
		}
		for name := range strings.SplitSeq(m[2], ", ") {
			p := proof.FindStringSubmatch(name)
			require.NotNil(t, p, "T%d: neither a test nor a mutant nor a check: %s", number, name)
			switch {
			case p[1] != "":
				require.True(t, tests[p[1]], "T%d: there is no %s", number, p[1])
			case p[2] != "":
				require.True(t, known[p[2]][p[3]], "T%d: %s has no mutant %q", number, p[2], p[3])
			default:
				require.True(t, known["soak"][p[4]], "T%d: the soak has no check %s", number, p[4])
			}
		}
	}
}

// The page has a row for everything that the tests of progress hold, and for nothing else.
func TestEveryHoldIsDocumented(t *testing.T) {
	t.Parallel()
	page := map[string]bool{}
	for _, line := range read(t, "docs/correctness.md").lines {
		if m := holdRow.FindStringSubmatch(line); m != nil {
			for name := range strings.SplitSeq(m[1], "; ") {
				page[name] = true
			}
		}
		if line == "## Invariants" {
			break
		}
	}
	held := listed(t, `(?m)^\t\{name: "([^"]+)"`, "integration", "progress_holds_test.go")
	delete(held, "nothing")
	for name := range held {
		require.True(t, page[name], "docs/correctness.md does not say what may wait for %q", name)
	}
	for name := range page {
		require.True(t, held[name], "no test holds %q", name)
	}
}

// hazards are the entries of docs/hazards.txt, each part of one in a line.
func hazards(t *testing.T) []string {
	t.Helper()
	text := strings.Join(read(t, "docs/hazards.txt").lines, "\n")
	entries := strings.Split(strings.ReplaceAll(text, "\n      ", " "), "\n\n")[1:] // behind the title
	require.NotEmpty(t, entries)
	return entries
}

// listed are the names in a file.
func listed(t *testing.T, pattern string, path ...string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.Join(path...)))
	require.NoError(t, err)
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
	}
	require.NotEmpty(t, names)
	return names
}
