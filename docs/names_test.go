package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
)

var (
	link     = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	code     = regexp.MustCompile("`([^`]+)`")
	anchor   = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	heading  = regexp.MustCompile(`^#{1,6} (.*)$`)
	noSlug   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	testName = regexp.MustCompile(`^(Test|Example|Fuzz)[A-Za-z0-9_]*$`)
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)*/?$`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := map[string]page{}
	for _, p := range withFolders(t) {
		all[p.path] = p
	}
	for _, p := range all {
		for number, line := range p.prose() {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				to := p.path
				if target != "" {
					to = path.Join(path.Dir(p.path), target)
				}
				require.FileExists(t, orFolder(to), "%s:%d: link to %s", p.path, number, m[1])
				if anchor != "" {
					require.Contains(t, all, to, "%s:%d: anchor %s of a file that is no page", p.path, number, m[1])
					require.Contains(t, anchors(all[to]), anchor, "%s:%d: link to %s", p.path, number, m[1])
				}
			}
		}
	}
}

// orFolder is a path from the root; of a folder, something in it.
func orFolder(to string) string {
	at := filepath.Join(root, to)
	if entries, err := os.ReadDir(at); err == nil {
		for _, e := range entries {
			if !e.IsDir() {
				return filepath.Join(at, e.Name())
			}
		}
		for _, e := range entries {
			return orFolder(path.Join(to, e.Name()))
		}
	}
	return at
}

// anchors are a page's headings as its readers' browsers know them, and the places marked in it.
func anchors(p page) []string {
	var out []string
	for _, line := range p.prose() {
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			out = append(out, m[1])
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			out = append(out, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
		}
	}
	return out
}

// Text in code marks that looks like a test or a path of this repository is one.
func TestNamesExist(t *testing.T) {
	t.Parallel()
	sources, tests := tree(t)
	top, err := os.ReadDir(root)
	require.NoError(t, err)
	folders := map[string]bool{}
	for _, e := range top {
		folders[e.Name()] = e.IsDir()
	}
	for _, p := range withFolders(t) {
		for number, line := range p.prose() {
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				name := m[1]
				first, _, deep := strings.Cut(name, "/")
				switch {
				case testName.MatchString(name):
					require.Contains(t, tests, name, "%s:%d", p.path, number)
				case deep && folders[first] && filePath.MatchString(name):
					found, err := filepath.Glob(filepath.Join(root, name))
					require.NoError(t, err)
					require.NotEmpty(t, found, "%s:%d: no %s", p.path, number, name)
				case strings.HasSuffix(name, ".go") && filePath.MatchString(name):
					require.Contains(t, sources, path.Base(name), "%s:%d", p.path, number)
				}
			}
		}
	}
}

// tree lists the Go files by name, and the tests in them.
func tree(t *testing.T) (files, tests map[string]bool) {
	t.Helper()
	files, tests = map[string]bool{}, map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)
	require.NoError(t, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(at) != ".go" {
			return err
		}
		files[d.Name()] = true
		text, err := os.ReadFile(at)
		for _, m := range function.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	}))
	return files, tests
}

// The reference of the configuration has a row for each field, and no other.
func TestConfigurationIsComplete(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("^\\| `(\\w+)` \\|")
	var documented []string
	for _, line := range append(read(t, "docs/guide/configuration.md").lines, read(t, "docs/guide/middleware.md").lines...) {
		if m := row.FindStringSubmatch(line); m != nil {
			documented = append(documented, m[1])
		}
	}
	var fields []string
	for _, of := range []any{engine.Config{}, engine.Queue{}, engine.Limits{}, engine.Hooks{}, engine.Middleware{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			fields = append(fields, f.Name)
		}
	}
	require.ElementsMatch(t, fields, documented)
}

// docs/statements.txt has each statement of package store once, and no other.
func TestStatementsAreComplete(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?:named|formsOf|sweepsOf)\("([^"]+)"`)
	sources, err := filepath.Glob(filepath.Join(root, "internal", "store", "*.go"))
	require.NoError(t, err)
	var statements []string
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, m := range named.FindAllSubmatch(text, -1) {
			statements = append(statements, string(m[1])) // once for each of its forms
		}
	}
	slices.Sort(statements)
	var documented []string
	_, list, _ := strings.Cut(strings.Join(read(t, "docs/statements.txt").lines, "\n"), "\n== ")
	entries := regexp.MustCompile(`(?m)^([a-z_]+(?: [a-z]+)*(?:, [a-z_]+(?: [a-z]+)*)*)\n    \S`)
	for _, m := range entries.FindAllStringSubmatch(list, -1) {
		documented = append(documented, strings.Split(m[1], ", ")...)
	}
	slices.Sort(documented)
	require.Equal(t, slices.Compact(statements), documented)
}

// A page that is too long for one reading is two.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		require.Less(t, len(p.lines), 400, p.path)
	}
}

// A decision keeps its number, so numbers have no gaps, and none stands twice.
func TestDecisionsAreNumbered(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, decisions(t))
	for i, line := range decisions(t) {
		require.True(t, strings.HasPrefix(line, fmt.Sprintf(`- <a id="d%d"></a>D%d: `, i+1, i+1)), "%s", line)
	}
}

// decisions are the entries of the list.
func decisions(t *testing.T) (rows []string) {
	t.Helper()
	for _, line := range read(t, "docs/decisions.md").lines {
		if strings.HasPrefix(line, "- <a id=") {
			rows = append(rows, line)
		}
	}
	return rows
}

// The list of examples has a row for each of them.
func TestExamplesAreListed(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(filepath.Join(root, "examples"))
	require.NoError(t, err)
	text := strings.Join(read(t, "examples/README.md").lines, "\n")
	for _, e := range entries {
		if e.IsDir() && e.Name() != "internal" {
			require.Contains(t, text, "\n| ["+e.Name()+"]("+e.Name()+") |")
		}
	}
}

// Comments cite entries that exist.
func TestCitationsResolve(t *testing.T) {
	t.Parallel()
	made := len(decisions(t))
	known, sections := map[string]bool{}, map[string]bool{}
	for _, entry := range hazards(t) {
		number, _, _ := strings.Cut(entry, ":")
		known[number] = true
	}
	for _, line := range read(t, "docs/specification.md").lines {
		if m := regexp.MustCompile(`^## (§\d+) `).FindStringSubmatch(line); m != nil {
			sections[m[1]] = true
		}
	}
	require.NoError(t, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(at) != ".go" && filepath.Ext(at) != ".sql" {
			return err
		}
		text, err := os.ReadFile(at)
		for _, m := range regexp.MustCompile(`\bT\d{1,3}\b`).FindAll(text, -1) {
			require.True(t, known[string(m)], "%s cites %s", at, m)
		}
		for _, m := range regexp.MustCompile(`decision D(\d+)`).FindAllSubmatch(text, -1) {
			number, err := strconv.Atoi(string(m[1]))
			require.True(t, err == nil && number >= 1 && number <= made, "%s cites %s", at, m[0])
		}
		for _, m := range regexp.MustCompile(`spec ((?:§\d+(?:, )?)+)`).FindAllSubmatch(text, -1) {
			for section := range strings.SplitSeq(strings.TrimSuffix(string(m[1]), ", "), ", ") {
				require.True(t, sections[section], "%s cites spec %s", at, section)
			}
		}
		return err
	}))
}
