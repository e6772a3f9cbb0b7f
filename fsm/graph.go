package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Graph is the steps of a machine and where they may lead, to be drawn: a file for reviewers, or a page with the counts of [GraphStep.Note].
// [GraphOf] makes one of a definition. Names are escaped, whatever is in them.
type Graph struct {
	Machine string
	Version int
	Initial string // the step that instances begin at unless their spec says otherwise; empty: not marked
	Steps   []GraphStep
}

// GraphStep is one step of a [Graph].
type GraphStep struct {
	Name     string
	To       []string // where it may lead, as declared; retries, and the ends that every step may have, are not drawn
	Anywhere bool     // it may lead to any step: it has no To, and is not a job's
	Note     string   // is written beneath the name; GraphOf leaves it empty
}

// GraphOf is the graph of a definition: the initial step, then what it leads to, then what nothing leads to. What is wrong with the definition
// engine.New says: here a step that To names and nobody defines is drawn as any other. Of nil it is empty.
func GraphOf(d Definition) Graph {
	if d == nil {
		return Graph{}
	}
	m := d.Erase()
	g := Graph{Machine: m.Name, Version: m.Version, Initial: m.Initial}
	waiting := append([]string{m.Initial}, slices.Sorted(maps.Keys(m.Steps))...)
	seen := map[string]bool{}
	var visit func(names []string)
	visit = func(names []string) {
		var next []string
		for _, name := range names {
			s, defined := m.Steps[name]
			if !defined || seen[name] {
				continue
			}
			seen[name] = true
			g.Steps = append(g.Steps, GraphStep{Name: name, To: s.To, Anywhere: s.To == nil && !m.Job})
			next = append(next, s.To...)
		}
		if len(next) > 0 {
			visit(next)
		}
	}
	for _, name := range waiting {
		visit([]string{name})
	}
	return g
}

// anyStep is what a step without To leads to.
const anyStep = "any step"

// Mermaid draws it as a flowchart of Mermaid: the initial step is round, an arrow to "any step" is dotted.
func (g Graph) Mermaid() string {
	return g.draw(drawing{
		head: "%% " + mermaidText(g.title()) + "\nflowchart TD\n", escape: mermaidText, line: "<br/>",
		step: "  %s[\"%s\"]\n", initial: "  %s([\"%s\"])\n", any: "  %s((\"%s\"))\n", arrow: "  %s --> %s\n", dotted: "  %s -.-> %s\n",
	})
}

// DOT draws it in the language of Graphviz: the initial step has two lines around it, an arrow to "any step" is dotted.
func (g Graph) DOT() string {
	return g.draw(drawing{
		head: "digraph {\n  graph [label=\"" + dotText(g.title()) + "\"]\n  node [shape=box]\n", escape: dotText, line: `\n`, tail: "}\n",
		step: "  %s [label=\"%s\"]\n", initial: "  %s [label=\"%s\", peripheries=2]\n", any: "  %s [label=\"%s\", shape=circle]\n",
		arrow: "  %s -> %s\n", dotted: "  %s -> %s [style=dotted]\n",
	})
}

func (g Graph) title() string { return fmt.Sprintf("%s/%d", g.Machine, g.Version) }

// drawing is a language to draw in.
type drawing struct {
	head, tail         string
	line               string // between the lines of a label
	step, initial, any string // nodes: an id, a label
	arrow, dotted      string // two ids
	escape             func(string) string
}

// draw gives the steps ids of its own, since names may hold anything.
func (g Graph) draw(as drawing) string {
	var nodes, arrows strings.Builder
	ids := map[string]string{}
	node := func(name, note string) {
		if ids[name] != "" {
			return
		}
		ids[name] = fmt.Sprint("s", len(ids))
		shape, label := as.step, as.escape(name)
		if name == g.Initial && name != "" {
			shape = as.initial
		}
		if note != "" {
			label += as.line + as.escape(note)
		}
		fmt.Fprintf(&nodes, shape, ids[name], label)
	}
	for _, s := range g.Steps {
		node(s.Name, s.Note)
	}
	for _, s := range g.Steps {
		for _, to := range s.To {
			node(to, "")
			fmt.Fprintf(&arrows, as.arrow, ids[s.Name], ids[to])
		}
		if s.Anywhere {
			fmt.Fprintf(&arrows, as.dotted, ids[s.Name], "any")
		}
	}
	if slices.ContainsFunc(g.Steps, func(s GraphStep) bool { return s.Anywhere }) {
		fmt.Fprintf(&nodes, as.any, "any", as.escape(anyStep))
	}
	return as.head + nodes.String() + arrows.String() + as.tail
}

// mermaidText writes all but plain characters as entities: quotes, markup and directives mean something to Mermaid within quotes, too. It takes
// a label for Markdown, so what begins a list, emphasis or a link there is plain only between letters.
func mermaidText(of string) string {
	var out strings.Builder
	runes := []rune(of)
	for n, r := range runes {
		switch {
		case isWord(r), strings.ContainsRune(" ,/(", r),
			strings.ContainsRune("_-", r) && n > 0 && n+1 < len(runes) && isWord(runes[n-1]) && isWord(runes[n+1]):
			out.WriteRune(r)
		case unicode.IsPrint(r):
			fmt.Fprintf(&out, "#%d;", r)
		default:
			out.WriteRune(unicode.ReplacementChar)
		}
	}
	return out.String()
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// dotText is for a label in quotes, where a backslash begins an escape and an ampersand an entity.
func dotText(of string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, of)
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `&`, `&amp;`).Replace(printable)
}
