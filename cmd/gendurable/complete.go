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

// The scripts ask the program itself, so they are never older than it: "gendurable complete -- words" prints what could be the last word.
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

// Run the command.
func (c *completion) Run(_ context.Context, a *app) error {
	return a.show(map[string]string{"shell": c.Shell, "script": scripts[c.Shell]}, func(w io.Writer) {
		fmt.Fprint(w, scripts[c.Shell])
	})
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run the command.
func (c *completeCommand) Run(_ context.Context, a *app) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, word := range candidates(a.model.Node, words) {
		fmt.Fprintln(a.console.out, word)
	}
	return nil
}

// values of flags that have no enum.
var values = map[string]func() []string{
	"status": func() (out []string) {
		for _, s := range fsm.Statuses() {
			out = append(out, string(s))
		}
		return out
	},
	"failure": func() []string {
		return []string{string(fsm.FailureStopped), string(fsm.FailureError), string(fsm.FailureExhausted), string(fsm.FailureCrashes),
			string(fsm.FailureCancelled), string(fsm.FailureDeadline)}
	},
}

// candidates are what could be the last of the words, by what stands before it.
func candidates(at *kong.Node, words []string) (out []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var pending *kong.Flag // the word before was a flag that wants a value
	for _, word := range words[:len(words)-1] {
		switch name, isFlag := strings.CutPrefix(word, "--"); {
		case pending != nil:
			pending = nil
		case isFlag:
			if flag := flagOf(at, name); flag != nil && !flag.IsBool() {
				pending = flag
			}
		default:
			for _, child := range at.Children {
				if child.Name == word {
					at = child
					break
				}
			}
		}
	}
	switch {
	case pending != nil:
		out = pending.EnumSlice()
		if list := values[pending.Name]; list != nil {
			out = list()
		}
	case strings.HasPrefix(last, "-"):
		for _, flags := range at.AllFlags(true) {
			for _, f := range flags {
				out = append(out, "--"+f.Name)
			}
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

func flagOf(at *kong.Node, name string) *kong.Flag {
	for _, flags := range at.AllFlags(true) {
		for _, f := range flags {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}
