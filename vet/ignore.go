package vet

import (
	"fmt"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// ignoring begins a comment that silences a rule in its own line and in the next one.
const ignoring = "//gendurable:ignore"

// ignores are the rules that are silent, by line.
type ignores map[line][]string

type line struct {
	file string
	n    int
}

// readIgnores reads the comments. One that names no rule, or says no reason, is a finding itself:
// a later reader should know the intention.
func (u *unit) readIgnores() {
	u.ignored = ignores{}
	known := make([]string, 0, len(Rules()))
	for _, r := range Rules() {
		known = append(known, r.Name)
	}
	for _, file := range u.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				text, ok := strings.CutPrefix(c.Text, ignoring)
				if !ok || text != "" && text[0] != ' ' {
					continue
				}
				words := strings.Fields(text)
				switch {
				case len(words) == 0 || !slices.Contains(known, words[0]):
					u.report("ignore", c.Pos(), "name the rule that is to be silent: one of %s", strings.Join(known, ", "))
				case len(words) == 1:
					u.report("ignore", c.Pos(), "say why rule %s is to be silent here", words[0])
				default:
					at := u.Fset.Position(c.Pos())
					u.ignored[line{at.Filename, at.Line}] = append(u.ignored[line{at.Filename, at.Line}], words[0])
				}
			}
		}
	}
}

func (u *unit) report(rule string, at token.Pos, format string, a ...any) {
	where := u.Fset.Position(at)
	for _, n := range []int{where.Line, where.Line - 1} {
		if slices.Contains(u.ignored[line{where.Filename, n}], rule) {
			return
		}
	}
	u.Report(analysis.Diagnostic{Pos: at, Category: rule, Message: rule + ": " + fmt.Sprintf(format, a...)})
}
