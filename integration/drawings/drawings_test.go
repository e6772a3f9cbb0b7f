// Package drawings reads the drawings of machines with the parsers of Mermaid and Graphviz.
package drawings

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/node"
	"github.com/gendurable/gendurable/internal/tier"
)

// block is a drawing in a page.
var block = regexp.MustCompile("(?ms)^```mermaid\n(.*?)^```$")

type drawing struct {
	Language string `json:"language"`
	Text     string `json:"text"`
}

// parsed is the result of a parser: the labels by id, and the ids at the arrows' ends.
type parsed struct {
	Nodes  map[string]string `json:"nodes"`
	Arrows [][2]string       `json:"arrows"`
	Error  string            `json:"error"`
}

func read(t *testing.T, drawings ...drawing) (found []parsed) {
	t.Helper()
	if !node.Found() {
		t.Skip("there is no Node here")
	}
	dir := t.TempDir()
	require.NoError(t, node.Prepare(dir, "read.mjs"))
	told, err := json.Marshal(drawings)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", "read.mjs")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(told))
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	require.NoError(t, json.Unmarshal(out, &found), "%s", out)
	require.Len(t, found, len(drawings))
	return found
}

// names are names of machines and steps, among them words that the languages use themselves.
var names = []string{
	"plain", "end", "subgraph", "graph", "a b", " padded ", `quo"te`, `back\slash`, `\n`, `trailing\`, "new\nline", "tab\there", "carriage\rreturn",
	"<br/>", "<b>bold</b>", "&amp;", "&#34;", "#34;", "#quot;", "`code`", "**bold**", "1. list", "1) list", "- list", "_emphasis_", "__strong__", "a_b_c", "a-b.c", "www.example.com", "a\n- b", "-", "_", "---x", "%% comment", "%%{init: {}}%%",
	"// comment", "/* comment */", "a --> b", "a -> b", "a;b", "[x]", "(x)", "{x}", "|x|", "x:::class", "@{ shape: rect }", "größe", "注文",
	"🛒", "e\u0301", "\u202eright to left", "nul\x00", "\x1b[31m", "bom\ufeff", "ﬂ°°34¶ß", "$x^2$", "---\ntitle: x\n---", "---",
}

// drawn returns a name as the drawings have it: invisible characters are replaced, and Mermaid
// drops blanks around it.
func drawn(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.Trim(name, " "))
}

// With any names of machines and steps, both parsers read the drawing, and find its names, notes
// and arrows.
func TestParsersReadTheDrawings(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	graphs := make([]fsm.Diagram, 0, len(names)+1)
	all := fsm.Diagram{Machine: "all", Version: 1, Initial: names[0]}
	for n, name := range names {
		next := names[(n+1)%len(names)]
		all.Steps = append(all.Steps, fsm.DiagramStep{Name: name, To: []string{next}, Note: "1 runnable", Anywhere: n%2 == 0, Batch: 7 * (n % 3)})
		graphs = append(graphs, fsm.Diagram{Machine: name, Version: n, Initial: name, Steps: []fsm.DiagramStep{
			{Name: name, To: []string{next, name}, Note: name}, {Name: next, Anywhere: true},
		}})
	}
	graphs = append(graphs, all)
	var drawings []drawing
	for _, g := range graphs {
		drawings = append(drawings, drawing{"mermaid", g.Mermaid()}, drawing{"dot", g.DOT()})
	}
	broken := []drawing{{"mermaid", "flowchart TD\n  s0[\"a\"b\"]\n"}, {"dot", "digraph { s0 [label=\"a\"b\"] }"}}
	found := read(t, append(drawings, broken...)...)
	for n, d := range drawings {
		g := graphs[n/2]
		require.Empty(t, found[n].Error, "%s", d.Text)
		labels := map[string]string{} // by step
		for id, label := range found[n].Nodes {
			name, note, noted := strings.Cut(label, "\n")
			name, note = strings.Trim(name, " "), strings.Trim(note, " ")
			require.NotContains(t, labels, name, "%s", d.Text)
			labels[name] = id
			for _, s := range g.Steps {
				if drawn(s.Name) == name {
					require.Equal(t, s.Note != "", noted, "%s", d.Text)
					want := drawn(s.Note)
					if s.Batch > 0 {
						want = fmt.Sprintf("up to %d at once\n%s", s.Batch, want)
					}
					require.Equal(t, want, note, "%s", d.Text)
				}
			}
		}
		var want [][2]string
		for _, s := range g.Steps {
			require.Contains(t, labels, drawn(s.Name), "%s", d.Text)
			for _, to := range s.To {
				want = append(want, [2]string{labels[drawn(s.Name)], labels[drawn(to)]})
			}
			if s.Anywhere {
				want = append(want, [2]string{labels[drawn(s.Name)], labels["any step"]})
			}
		}
		require.ElementsMatch(t, want, found[n].Arrows, "%s", d.Text)
	}
	for n := range broken {
		require.NotEmpty(t, found[len(drawings)+n].Error, "what is not the language is refused")
	}
}

// Every drawing in the documentation can be drawn: otherwise a page would show a box with an error
// in its place.
func TestTheDocumentationsDrawingsAreDrawn(t *testing.T) {
	tier.Needs(t, tier.CI)
	t.Parallel()
	var drawings []drawing
	var places []string
	for _, pattern := range []string{"*.md", "*/*.md", "docs/guide/*.md", "integration/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join("..", "..", pattern))
		require.NoError(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page) //nolint:gosec // the project's own
			require.NoError(t, err)
			for _, m := range block.FindAllSubmatch(text, -1) {
				drawings, places = append(drawings, drawing{"document", string(m[1])}), append(places, page)
			}
		}
	}
	require.NotEmpty(t, drawings)
	broken := drawing{"document", "stateDiagram-v2\n  a --> --> b\n"}
	found := read(t, append(drawings, broken)...)
	for n, d := range drawings {
		require.Empty(t, found[n].Error, "%s:\n%s", places[n], d.Text)
	}
	require.NotEmpty(t, found[len(drawings)].Error, "what is not the language is refused")
}
