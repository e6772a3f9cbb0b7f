package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gendurable/gendurable/fsm"
)

// scripts ask the program itself, so they are never older than it: "gendurable complete -- words"
// prints the candidates for the last word.
var scripts = map[string]string{
	"bash": `_gendurable() {
  local IFS=$'\n'
  COMPREPLY=($(gendurable complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _gendurable gendurable
`,
	"zsh": `#compdef gendurable
_gendurable() {
  local -a found
  found=("${(@f)$(gendurable complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a found
}
compdef _gendurable gendurable
`,
	"fish": `function __gendurable_complete
  set -l words (commandline -opc) (commandline -ct)
  gendurable complete -- $words[2..-1] 2>/dev/null
end
complete -c gendurable -f -a '(__gendurable_complete)'
`,
}

type completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run runs the command.
func (c *completion) Run(_ context.Context, a *app) error {
	return a.show(map[string]string{"shell": c.Shell, "script": scripts[c.Shell]}, func(w io.Writer) {
		fmt.Fprint(w, scripts[c.Shell])
	})
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run runs the command.
func (c *completeCommand) Run(_ context.Context, a *app) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	var out strings.Builder
	for _, word := range candidates(a.model.Node, words) {
		out.WriteString(word + "\n")
	}
	_, err := io.WriteString(a.console.out, out.String())
	return err
}

// values returns the values of flags that have no enum.
var values = map[string]func() []string{
	"status": func() (out []string) {
		for _, s := range fsm.Statuses() {
			out = append(out, string(s))
		}
		return out
	},
	"failure": func() []string {
		return []string{string(fsm.FailureDecided), string(fsm.FailureError), string(fsm.FailureExhausted), string(fsm.FailureCrashes),
			string(fsm.FailureCancelled), string(fsm.FailureDeadline), string(fsm.FailureSkipped)}
	},
}

// candidates returns the candidates for the last of the words, by the words before it.
func candidates(root *kong.Node, words []string) (out []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	at, pending := walk(root, words[:len(words)-1])
	switch {
	case pending != nil && values[pending.Name] != nil:
		out = values[pending.Name]()
	case pending != nil:
		out = pending.EnumSlice()
	case strings.HasPrefix(last, "-"):
		for _, f := range slices.Concat(at.AllFlags(true)...) {
			out = append(out, "--"+f.Name)
		}
	default:
		for _, child := range at.Children {
			if !child.Hidden {
				out = append(out, child.Name)
			}
		}
		for _, arg := range at.Positional {
			out = append(out, arg.EnumSlice()...)
		}
	}
	out = slices.DeleteFunc(out, func(word string) bool { return word == "" || !strings.HasPrefix(word, last) })
	slices.Sort(out)
	return out
}

// walk descends to the command that the words name. pending is the last word's flag, if it wants a
// value.
func walk(at *kong.Node, words []string) (command *kong.Node, pending *kong.Flag) {
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		switch {
		case pending != nil:
			pending = nil
		case isFlag:
			if flag := flagOf(at, name); flag != nil && !flag.IsBool() {
				pending = flag
			}
		default:
			if n := slices.IndexFunc(at.Children, func(c *kong.Node) bool { return c.Name == word }); n >= 0 {
				at = at.Children[n]
			}
		}
	}
	return at, pending
}

func flagOf(at *kong.Node, name string) *kong.Flag {
	for _, f := range slices.Concat(at.AllFlags(true)...) {
		if f.Name == name {
			return f
		}
	}
	return nil
}
