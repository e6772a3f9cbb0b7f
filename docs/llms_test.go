package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// llms.txt has the form of llmstxt.org, and lists each page once, with a description. The site
// makes its navigation from it.
func TestEachPageIsListedForAgents(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "llms.txt"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	require.Equal(t, "# gendurable", lines[0])
	require.True(t, strings.HasPrefix(lines[2], "> "), "a summary follows the name")

	entry := regexp.MustCompile(`^- \[[^\]]+\]\(([^)]+)\): \S.+$`)
	listed, section := map[string]bool{}, ""
	for number, line := range lines {
		if title, is := strings.CutPrefix(line, "## "); is {
			section = title
		}
		if section == "" || line == "" || strings.HasPrefix(line, "## ") {
			continue
		}
		m := entry.FindStringSubmatch(line)
		require.NotNil(t, m, "llms.txt:%d: write - [title](path): description", number+1)
		require.False(t, listed[m[1]], "llms.txt:%d lists %s again", number+1, m[1])
		listed[m[1]] = true
	}
	for _, p := range pages(t) {
		require.True(t, listed[p.path], "llms.txt does not list %s: add a line with its description below the right heading", p.path)
		delete(listed, p.path)
	}
	require.Empty(t, listed, "llms.txt lists pages that do not exist: remove their lines")
}

// An agent reads its page whole, before it writes a line.
func TestTheAgentsPageIsShort(t *testing.T) {
	t.Parallel()
	p := read(t, "docs/guide/agents.md")
	require.LessOrEqual(t, len(strings.Fields(strings.Join(p.lines, "\n"))), 700)
}
