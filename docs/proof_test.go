package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each part of make proof has its row of docs/proof.md, and each row is a part that make runs.
func TestEveryPartOfTheProofHasItsRow(t *testing.T) {
	t.Parallel()
	makefile := strings.Join(read(t, "Makefile").lines, "\n")
	parts := regexp.MustCompile(`(?m)^PARTS := (.+)$`).FindStringSubmatch(makefile)
	require.NotNil(t, parts, "the Makefile lists no PARTS")
	var rows []string
	for _, line := range read(t, "docs/proof.md").lines {
		if cells := strings.Split(line, "|"); len(cells) == 9 && strings.HasPrefix(line, "| ") {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	require.Equal(t, append([]string{"part"}, strings.Fields(parts[1])...), rows)
	for _, part := range strings.Fields(parts[1]) {
		target := regexp.MustCompile(`-\d$`).ReplaceAllString(part, "-%") // a number is one pattern's
		require.Regexp(t, `(?m)^proof-`+target+`:`, makefile)
	}
}
