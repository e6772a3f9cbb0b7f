package store_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/outcomes.txt, docs/changes.txt and testdata/sql instead of comparing with them")

// The files are generated from the asserted tables, so they cannot contradict the code.
func TestOutcomesPage(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"outcomes": renderMatrix("Every outcome of a step, and its changes to the row in gen_durable.", outcomes),
		"changes":  renderMatrix("Every other change of a row in gen_durable.", matrix[len(outcomes):]),
	} {
		path := "../../docs/" + file + ".txt"
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "go test ./internal/store -run TestOutcomesPage -update writes it anew")
	}
}

// renderMatrix lists the changes by transition. Those that all transitions of a group have in
// common stand once, and transitions without a difference stand together.
func renderMatrix(title string, groups []group) string {
	var out strings.Builder
	out.WriteString(title + " outcomes.md says how to read this.\n" +
		"Written by go test ./internal/store -run TestOutcomesPage -update. Do not edit.\n")
	for _, g := range groups {
		fmt.Fprintf(&out, "\n== %s\n", g.title)
		if g.about != "" {
			out.WriteString(g.about + "\n")
		}
		common := maps.Clone(g.transitions[0].makes)
		for _, x := range g.transitions {
			maps.DeleteFunc(common, func(name string, r rule) bool { return x.makes[name].text != r.text })
		}
		if text := common.render(nil); text != "" {
			out.WriteString("\nall of these\n" + text)
		}
		var names, texts []string
		for _, x := range g.transitions {
			text := x.makes.render(common)
			if at := slices.Index(texts, text); at >= 0 {
				names[at] += " | " + x.name
				continue
			}
			names, texts = append(names, x.name), append(texts, text)
		}
		for i, name := range names {
			if texts[i] == "" {
				texts[i] = "    nothing else\n"
			}
			out.WriteString("\n" + name + "\n" + texts[i])
		}
	}
	return out.String()
}

// render returns a line for each value, with the columns that get it, except for the rules in
// common.
func (r rules) render(common rules) string {
	var values []string
	columns := map[string][]string{}
	for _, name := range slices.Concat(known, around) {
		rule, is := r[name]
		if _, isCommon := common[name]; !is || isCommon || rule.text == unchanged.text {
			continue
		}
		if columns[rule.text] == nil {
			values = append(values, rule.text)
		}
		columns[rule.text] = append(columns[rule.text], name)
	}
	text := ""
	for _, value := range values {
		text += fmt.Sprintf("    %s: %s\n", strings.Join(columns[value], ", "), value)
	}
	return text
}
