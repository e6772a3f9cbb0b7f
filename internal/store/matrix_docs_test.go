package store_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/outcomes.md instead of comparing with it")

const outcomesPage = "../../docs/outcomes.md"

// The page is generated from the asserted table, so it cannot contradict the code.
func TestOutcomesPage(t *testing.T) {
	t.Parallel()
	want := renderMatrix()
	if *update {
		require.NoError(t, os.WriteFile(outcomesPage, []byte(want), 0o644))
	}
	got, err := os.ReadFile(outcomesPage)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test ./internal/store -run TestOutcomesPage -update writes it anew")
}

const matrixIntroduction = `# What becomes of a row

<!-- Written by go test ./internal/store -run TestOutcomesPage -update, from the table that the tests assert. Do not edit. -->

This page lists every way in which a row of ` + "`gen_durable`" + ` changes, and what each change makes of each column. The tests of
` + "`internal/store`" + ` hold Postgres to exactly this, for every column, each outcome alone and together with all others in one batch.

- A dot means that the column stays as it was. A column that a table does not list stays as it was in all of its changes.
- Rows in italics are what surrounds the row and changes in the same transaction.
- *now* is the server's clock.
- *+1: retry* is one more entry of that kind in the list of errors, about the attempt as it was. The list keeps the newest 20.

An outcome, a heartbeat or a release whose claim is no longer current changes nothing at all.
`

func renderMatrix() string {
	var out strings.Builder
	out.WriteString(matrixIntroduction)
	for _, g := range matrix {
		fmt.Fprintf(&out, "\n## %s\n\n", g.title)
		if g.about != "" {
			out.WriteString(g.about + "\n\n")
		}
		out.WriteString("| |")
		for _, x := range g.transitions {
			out.WriteString(" " + x.name + " |")
		}
		out.WriteString("\n|---|" + strings.Repeat("---|", len(g.transitions)) + "\n")
		for _, name := range slices.Concat(known, around) {
			if cells, some := cellsOf(g, name); some {
				fmt.Fprintf(&out, "| %s | %s |\n", name, strings.Join(cells, " | "))
			}
		}
	}
	return out.String()
}

// cellsOf returns the rules of one column, and whether any transition has one.
func cellsOf(g group, column string) (cells []string, some bool) {
	for _, x := range g.transitions {
		r, ok := x.makes[column]
		if !ok {
			r = unchanged
		}
		some = some || r.text != unchanged.text
		cells = append(cells, r.text)
	}
	return cells, some
}
