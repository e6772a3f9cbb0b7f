package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/gendurable/gendurable/internal/step"
)

// Diagram holds the steps of a machine and where each may lead. It can be drawn, in a file for
// reviewers, or on a page that shows counts by [DiagramStep.Note]. [DiagramOf] makes one of a
// definition. The drawings escape names, so names may hold any text.
type Diagram struct {
	Machine string        `json:"machine"`
	Version int           `json:"version"`
	Initial string        `json:"initial,omitempty"` // the step that instances begin at unless their spec says otherwise; "": no step is marked
	Keyed   bool          `json:"keyed,omitempty"`   // the machine declares its keys by KeyFromState or KeyBy, so every new instance has one
	Steps   []DiagramStep `json:"steps"`
}

// DiagramStep is one step of a [Diagram].
type DiagramStep struct {
	Name     string   `json:"name"`
	To       []string `json:"to,omitempty"`       // the steps it may lead to, as declared; drawings show neither retries nor the ends that every step may have
	Anywhere bool     `json:"anywhere,omitempty"` // it may lead to any step: it has no To, and is not a job's
	Batch    int      `json:"batch,omitempty"`    // the most instances of one call; 0: it is not a batch step
	Entered  bool     `json:"entered,omitempty"`  // not by To: a migration brings instances of an older version to it, or Defined.Unless any
	Note     string   `json:"note,omitempty"`     // a text to write beneath the name; DiagramOf leaves it empty
}

// DiagramOf returns the diagram of a definition: first the initial step, then the steps that it
// leads to, then those that no step leads to. It reports no faults, engine.New does; a step that
// To names but that is not defined is drawn like any other. The diagram of nil is empty.
func DiagramOf(d Definition) Diagram {
	if d == nil {
		return Diagram{}
	}
	m := d.erase()
	g := Diagram{Machine: m.Name, Version: m.Version, Initial: m.Initial, Keyed: m.Keyed}
	entered := map[string]bool{}
	for _, first := range m.From {
		for name := range first.Steps {
			if to, ok := step.Arrives(m.Chain(first.From), name); ok {
				entered[to] = true
			}
		}
	}
	if m.Unless != nil {
		entered[m.Unless.Step] = true
	}
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
			drawn := DiagramStep{Name: name, To: s.To, Anywhere: s.To == nil && !m.Job, Entered: entered[name] && name != m.Initial}
			if s.Batch != nil {
				drawn.Batch = s.Batch.Most
			}
			g.Steps = append(g.Steps, drawn)
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

// anyStep is the name that drawings give to the target of a step without To.
const anyStep = "any step"

// Mermaid returns the diagram as a flowchart in Mermaid's language. The initial step is round; an
// arrow to "any step" is dotted.
func (g Diagram) Mermaid() string {
	return g.draw(drawing{
		head: "%% " + mermaidText(g.title()) + "\nflowchart TD\n", escape: mermaidText, line: "<br/>",
		step: "  %s[\"%s\"]\n", initial: "  %s([\"%s\"])\n", any: "  %s((\"%s\"))\n", arrow: "  %s --> %s\n", dotted: "  %s -.-> %s\n",
	})
}

// DOT returns the diagram in the language of Graphviz. Two lines surround the initial step; an
// arrow to "any step" is dotted.
func (g Diagram) DOT() string {
	return g.draw(drawing{
		head: "digraph {\n  graph [label=\"" + dotText(g.title()) + "\"]\n  node [shape=box]\n", escape: dotText, line: `\n`, tail: "}\n",
		step: "  %s [label=\"%s\"]\n", initial: "  %s [label=\"%s\", peripheries=2]\n", any: "  %s [label=\"%s\", shape=circle]\n",
		arrow: "  %s -> %s\n", dotted: "  %s -> %s [style=dotted]\n",
	})
}

func (g Diagram) title() string { return fmt.Sprintf("%s/%d", g.Machine, g.Version) }

// drawing is a language to draw in. The formats of nodes and arrows are for package fmt.
type drawing struct {
	head, tail         string
	line               string // the break between the lines of a label
	step, initial, any string // nodes; arguments: an id, a label
	arrow, dotted      string // arguments: two ids
	escape             func(string) string
}

// draw numbers the steps and uses the numbers as ids, since names may hold any text.
func (g Diagram) draw(as drawing) string {
	var nodes, arrows strings.Builder
	ids := map[string]string{}
	node := func(name string, notes ...string) {
		if ids[name] != "" {
			return
		}
		ids[name] = fmt.Sprint("s", len(ids))
		shape, label := as.step, as.escape(name)
		if name == g.Initial && name != "" {
			shape = as.initial
		}
		lines := []string{label}
		for _, note := range notes {
			if note != "" {
				lines = append(lines, as.escape(note))
			}
		}
		fmt.Fprintf(&nodes, shape, ids[name], strings.Join(lines, as.line))
	}
	for _, s := range g.Steps {
		batch := ""
		if s.Batch > 0 {
			batch = fmt.Sprintf("up to %d at once", s.Batch)
		}
		node(s.Name, batch, s.Note)
	}
	for _, s := range g.Steps {
		for _, to := range s.To {
			node(to)
			fmt.Fprintf(&arrows, as.arrow, ids[s.Name], ids[to])
		}
		if s.Anywhere {
			fmt.Fprintf(&arrows, as.dotted, ids[s.Name], "any")
		}
	}
	if slices.ContainsFunc(g.Steps, func(s DiagramStep) bool { return s.Anywhere }) {
		fmt.Fprintf(&nodes, as.any, "any", as.escape(anyStep))
	}
	return as.head + nodes.String() + arrows.String() + as.tail
}

// mermaidText writes all but plain characters as entities: Mermaid interprets quotes, markup and
// directives within quotes, too. It reads a label as Markdown, so a character that can begin a
// list, emphasis or a link there is plain only between letters.
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

// dotText escapes a label in quotes, where a backslash begins an escape and an ampersand an entity.
func dotText(of string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, of)
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `&`, `&amp;`).Replace(printable)
}
