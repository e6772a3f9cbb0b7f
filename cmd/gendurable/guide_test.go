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

// The program's own tables stand in the guide.
func TestGuide(t *testing.T) {
	t.Parallel()
	var all commands
	helped := false
	parser, err := newParser(&all, &console{out: io.Discard, errs: io.Discard}, &helped)
	require.NoError(t, err)
	page, err := os.ReadFile(guide)
	require.NoError(t, err)
	want := string(page)
	for _, part := range []struct{ name, text string }{
		{"commands", commandTable(parser.Model)}, {"options", flagTable(parser.Model.Flags)}, {"filters", filterTable(parser.Model)},
		{"codes", codeTable()}, {"checks", strings.Join(checkNames(), ", ") + "\n"},
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

func commandTable(model *kong.Application) string {
	var out strings.Builder
	out.WriteString("| command | flags of its own | |\n|---|---|---|\n")
	for _, leaf := range model.Leaves(true) {
		var flags []string
		selects := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "key-prefix" }) // other commands have a --version, too
		for _, f := range leaf.Flags {
			switch {
			case f.Name == "help", selects && isFilter(f):
			default:
				flags = append(flags, "`--"+f.Name+"`")
			}
		}
		if selects {
			flags = append([]string{"[filters](#filters)"}, flags...)
		}
		name := strings.TrimPrefix(leaf.FullPath(), "gendurable ")
		for _, arg := range leaf.Positional {
			name += " " + arg.Summary()
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, strings.Join(flags, " "), leaf.Help)
	}
	return out.String()
}

// filterFlags are the flags of struct filter.
var filterFlags = []string{"machine", "version", "step", "queue", "status", "failure", "key-prefix", "label", "partition", "parent", "error", "since", "before"}

func isFilter(f *kong.Flag) bool { return slices.Contains(filterFlags, f.Name) }

func filterTable(model *kong.Application) string {
	for _, leaf := range model.Leaves(true) {
		if leaf.FullPath() != "gendurable instance list" {
			continue
		}
		var flags []*kong.Flag
		for _, f := range leaf.Flags {
			if isFilter(f) {
				flags = append(flags, f)
			}
		}
		return flagTable(flags)
	}
	return ""
}

func flagTable(flags []*kong.Flag) string {
	var out strings.Builder
	out.WriteString("| flag | |\n|---|---|\n")
	for _, f := range flags {
		if f.Name == "help" {
			continue
		}
		name := "--" + f.Name
		if !f.IsBool() {
			name += "=" + strings.Trim(strings.TrimSuffix(f.FormatPlaceHolder(), ",..."), `"`)
		}
		help := f.Help
		for _, variable := range f.Envs {
			help += " Also $" + variable + "."
		}
		fmt.Fprintf(&out, "| `%s` | %s |\n", name, help)
	}
	return out.String()
}

func codeTable() string {
	var out strings.Builder
	out.WriteString("| code | name | |\n|---|---|---|\n")
	for _, one := range exitCodes {
		fmt.Fprintf(&out, "| %d | `%s` | %s |\n", int(one.code), one.name, one.meaning)
	}
	return out.String()
}
