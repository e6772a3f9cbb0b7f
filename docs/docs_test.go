// Package docs_test holds the documentation to the code: its Go compiles, its links lead somewhere,
// and what it names is there.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root of the repository, seen from this package.
const root = ".."

// page is one Markdown file.
type page struct {
	path   string // from the root
	lines  []string
	blocks []block
}

// block is fenced code.
type block struct {
	language string
	frame    string // of the comment above a Go fragment: <!-- frame: name -->
	file     string // of the comment above what is a file's code: <!-- file: path -->, from the root
	line     int    // of its first line, from 1
	text     string
}

var (
	frameComment = regexp.MustCompile(`^<!-- frame: (\w+) -->$`)
	fileComment  = regexp.MustCompile(`^<!-- file: (\S+) -->$`)
)

// pages reads all of the project's Markdown.
func pages(t *testing.T) []page {
	t.Helper()
	paths := []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "docs/plans/README.md"}
	below, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	guide, err := filepath.Glob(filepath.Join(root, "docs", "guide", "*.md"))
	require.NoError(t, err)
	for _, path := range slices.Concat(below, guide) {
		path, err := filepath.Rel(root, path)
		require.NoError(t, err)
		paths = append(paths, path)
	}
	all := make([]page, len(paths))
	for i, path := range paths {
		all[i] = read(t, path)
	}
	return all
}

// withFolders are the pages, and further ones beside code, which neither llms.txt nor the site has.
func withFolders(t *testing.T) []page {
	t.Helper()
	all := pages(t)
	for _, path := range []string{"bench/README.md", "bench/tried.md", "integration/interleave/README.md"} {
		all = append(all, read(t, path))
	}
	return all
}

func read(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	p := page{path: path, lines: strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")}
	var open *block
	var frame, file string
	for i, line := range p.lines {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case open == nil && fence:
			open = &block{language: language, frame: frame, file: file, line: i + 2}
		case open == nil:
			frame, file = "", ""
			if m := frameComment.FindStringSubmatch(line); m != nil {
				frame = m[1]
			}
			if m := fileComment.FindStringSubmatch(line); m != nil {
				file = m[1]
			}
		case fence:
			p.blocks = append(p.blocks, *open)
			open = nil
		default:
			open.text += line + "\n"
		}
	}
	require.Nil(t, open, "%s ends within a code block", path)
	return p
}

// prose is the lines outside of code blocks, by their number.
func (p page) prose() map[int]string {
	out := map[int]string{}
	code := false
	for i, line := range p.lines {
		if strings.HasPrefix(line, "```") {
			code = !code
		} else if !code {
			out[i+1] = line
		}
	}
	return out
}
