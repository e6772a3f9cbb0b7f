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

var update = flag.Bool("update", false, "write docs/outcomes.md, docs/changes.md and testdata/sql instead of comparing with them")

// The pages are generated from the asserted tables, so they cannot contradict the code.
func TestOutcomesPage(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"outcomes": renderMatrix(matrixIntroduction, outcomes),
		"changes":  renderMatrix(changesIntroduction, matrix[len(outcomes):]),
	} {
		path := "../../docs/" + page + ".md"
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "go test ./internal/store -run TestOutcomesPage -update writes it anew")
	}
}

const matrixIntroduction = `# What becomes of a row

<!-- Written by go test ./internal/store -run TestOutcomesPage -update, from the table that the tests assert. Do not edit. -->

This page lists every outcome of a step, and what it makes of each column of its row in ` + "`gen_durable`" + `; [another one](changes.md) lists
all that others make of a row. The tests of ` + "`internal/store`" + ` hold Postgres to exactly this, for every column, each outcome alone and
together with all others in one batch.

- A dot means that the column stays as it was. A column that a table does not list stays as it was in all of its changes.
- Rows in italics are what surrounds the row and changes in the same transaction.
- *now* is the server's clock.
- *+1: retry* is one more entry of that kind in the list of errors, about the attempt as it was. The list keeps the newest 20.

An outcome, a heartbeat or a release whose claim is no longer current changes nothing at all.
`

const changesIntroduction = `# What others make of a row

<!-- Written by go test ./internal/store -run TestOutcomesPage -update, from the table that the tests assert. Do not edit. -->

This page lists every way in which a row of ` + "`gen_durable`" + ` changes that is not an outcome of its own step, and what each change makes of
each column. [Outcomes](outcomes.md) lists those, and says how to read the tables.
`

func renderMatrix(introduction string, groups []group) string {
	var out strings.Builder
	out.WriteString(introduction)
	for _, g := range groups {
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
