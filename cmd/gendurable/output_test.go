package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTables(t *testing.T) {
	t.Parallel()
	table := newTable("id", "name", "error")
	table.add(7, "order", "a long story about what went wrong")
	table.add(1234, "ümläut\x1b[31m\n", nil)
	var wide, narrow strings.Builder
	table.write(&wide, 0)
	require.Equal(t, "  ID  NAME          ERROR\n"+
		"   7  order         a long story about what went wrong\n"+
		"1234  ümläut\uFFFD[31m\n", strings.ReplaceAll(wide.String(), "[31m ", "[31m"))
	table.write(&narrow, 30)
	for line := range strings.SplitSeq(narrow.String(), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 30)
	}
	require.Contains(t, narrow.String(), "…")
	require.Contains(t, narrow.String(), "1234", "what is short stays whole")

	// A table that is still too wide has a line for each cell that is not empty.
	var tiny strings.Builder
	table.write(&tiny, 16)
	require.Equal(t, "ID     7\nNAME   order\nERROR  a long s…\n\nID     1234\nNAME   ümläut\uFFFD[…\n", tiny.String())
	tiny.Reset()
	table.write(&tiny, 1) // the least width that can be read
	require.Contains(t, tiny.String(), "order")

	// Numbers and headings are never cut off; the space between them shrinks first.
	numbers := newTable("number", "another", "text")
	numbers.add("12345678+", 123456789, "something")
	for width, want := range map[int]string{
		31: "   NUMBER    ANOTHER  TEXT\n12345678+  123456789  something\n",
		30: "   NUMBER   ANOTHER TEXT\n12345678+ 123456789 something\n",
		28: "   NUMBER   ANOTHER TEXT\n12345678+ 123456789 somethi…\n",
		27: "NUMBER   12345678+\nANOTHER  123456789\nTEXT     something\n",
	} {
		var out strings.Builder
		numbers.write(&out, width)
		require.Equal(t, want, out.String(), "%d", width)
	}

	var empty strings.Builder
	newTable("id").write(&empty, 80)
	require.Equal(t, "ID\n", empty.String())
}

// A shell reads each of these as one word.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"plain", "", "a b", "it's", `"$HOME" \ *`, "a\nb", "-x;y", "größe", "~"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+word(text)).Output()
		require.NoError(t, err)
		require.Equal(t, text, string(out))
	}
	require.Equal(t, "order:42", word("order:42"))
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0ms": 0, "999ms": 999 * time.Millisecond, "119s": 119 * time.Second, "2m": 2 * time.Minute, "119m": 119 * time.Minute,
		"2h": 2 * time.Hour, "47h": 47 * time.Hour, "2d": 48 * time.Hour, "-5s": -5 * time.Second,
	} {
		require.Equal(t, want, span(d))
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "2026-11-21T13:00:00+01:00": now,
	} {
		got, err := moment("--since", text, now, true)
		require.NoError(t, err)
		require.True(t, want.Equal(got), "%s: %v", text, got)
	}
}

func TestIndentedJSON(t *testing.T) {
	t.Parallel()
	require.Equal(t, "{\n    \"n\": 1\n  }", indented([]byte(`{"n":1}`), "  "))
	require.Equal(t, "not JSON", indented([]byte("not JSON"), ""))
	require.Empty(t, indented(nil, ""))
}
