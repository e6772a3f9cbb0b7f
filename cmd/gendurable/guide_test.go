package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/guide/cli.md instead of comparing with them")

const guide = "../../docs/guide/cli.md"

// The guide names each command, and has the program's own tables.
func TestGuide(t *testing.T) {
	t.Parallel()
	var all commands
	helped := false
	parser, err := newParser(&all, &console{out: io.Discard, errs: io.Discard}, &helped)
	require.NoError(t, err)
	page, err := os.ReadFile(guide)
	require.NoError(t, err)
	for _, leaf := range parser.Model.Leaves(true) {
		require.Contains(t, string(page), "`"+strings.TrimPrefix(leaf.FullPath(), "gendurable ")+"`")
	}
	for _, f := range parser.Model.Flags {
		require.True(t, f.Name == "help" || strings.Contains(string(page), "`--"+f.Name), "--%s", f.Name)
		for _, variable := range f.Envs {
			require.Contains(t, string(page), "$"+variable)
		}
	}
	want := string(page)
	for _, part := range []struct{ name, text string }{
		{"filters", filterNames(parser.Model)}, {"codes", codeTable()}, {"checks", strings.Join(checkNames(), ", ") + "\n"},
	} {
		begin, end := "<!-- generated: "+part.name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(want, begin)
		require.True(t, found, "no place for the %s", part.name)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, "no end of the %s", part.name)
		want = before + begin + "\n" + part.text + "\n" + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(guide, []byte(want), 0o644))
	}
	require.Equal(t, want, string(page), "go test ./cmd/gendurable -run TestGuide -update writes it anew")
}

// filterFlags are the flags of struct filter.
var filterFlags = []string{"machine", "version", "step", "queue", "status", "failure", "key-prefix", "label", "partition", "parent", "error", "fingerprint", "since", "before"}

func isFilter(f *kong.Flag) bool { return slices.Contains(filterFlags, f.Name) }

// filterNames are the flags by which commands of instances select them.
func filterNames(model *kong.Application) string {
	for _, leaf := range model.Leaves(true) {
		if leaf.FullPath() != "gendurable instance list" {
			continue
		}
		var names []string
		for _, f := range leaf.Flags {
			if isFilter(f) {
				names = append(names, "`"+nameOf(f)+"`")
			}
		}
		return strings.Join(names, ", ") + "\n"
	}
	return ""
}

// nameOf is a flag with its placeholder.
func nameOf(f *kong.Flag) string {
	if f.IsBool() {
		return "--" + f.Name
	}
	return "--" + f.Name + "=" + strings.Trim(strings.TrimSuffix(f.FormatPlaceHolder(), ",..."), `"`)
}

func codeTable() string {
	var out strings.Builder
	out.WriteString("| code | name | |\n|---|---|---|\n")
	for _, one := range exitCodes {
		fmt.Fprintf(&out, "| %d | `%s` | %s |\n", int(one.code), one.name, one.meaning)
	}
	return out.String()
}
