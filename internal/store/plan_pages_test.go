package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planPages has the files of docs/plans by name.
type planPages map[string]*planPage

// planPage has a section per measured verb, and knows under which verb it shows a plan first.
type planPage struct {
	sections []string
	shown    map[string]string
}

// planPagesOf says which page a verb's plan is on, by how its name begins. The first that fits
// counts.
var planPagesOf = []struct{ begins, page string }{
	{"claim", "claim"}, {"gated claim", "claim"}, {"who lingers", "claim"}, {"read the rest of a claim", "claim"}, {"what nodes", "claim"},
	{"commit", "commit"}, {"resolve", "commit"},
	{"insert", "insert"}, {"deliver", "insert"}, {"keep", "insert"}, {"kept", "insert"},
	{"audit", "read"}, {"count", "read"}, {"group", "read"}, {"list", "read"}, {"rates", "read"}, {"read", "read"}, {"relations", "read"},
	{"select", "read"}, {"timeline", "read"}, {"traffic", "read"},
	{"", "sweep"},
}

func planPageOf(verb string) string {
	for _, p := range planPagesOf {
		if strings.HasPrefix(verb, p.begins) {
			return p.page
		}
	}
	return ""
}

// planHeads are the pages' beginnings.
var planHeads = map[string]string{
	"claim":  "Claims, and what they read",
	"commit": "Commits",
	"insert": "Inserts and deliveries",
	"read":   "Reads of operators and pages",
	"sweep":  "Polls, sweeps, leases and operators' verbs",
}

// add adds the section of a verb.
func (p planPages) add(m *measured, c *cost, rows int) {
	name := planPageOf(m.verb)
	if p[name] == nil {
		p[name] = &planPage{shown: map[string]string{}}
	}
	page := p[name]
	var b strings.Builder
	fmt.Fprintf(&b, "== %s\n\n%s for %s", m.verb, figure(c.buffers, "buffer"), figure(rows, "row"))
	if m.indexes != "" {
		fmt.Fprintf(&b, "; served by %s", strings.Join(strings.Fields(m.indexes), ", "))
	}
	b.WriteString("\n")
	for i := range c.plans {
		s := &c.plans[i]
		if !s.Plan.reads() {
			continue
		}
		shape := s.Text + s.Plan.drawn(false)
		if under := page.shown[shape]; under == "" {
			page.shown[shape] = m.verb
			fmt.Fprintf(&b, "\n%s\n%s", head(s.Text), s.Plan.drawn(true))
		} else if under != m.verb {
			fmt.Fprintf(&b, "\n%s: as under %q, %s\n", head(s.Text), under, figure(s.Plan.Hit+s.Plan.Read, "buffer"))
		}
	}
	page.sections = append(page.sections, b.String())
}

// write writes the pages into a directory.
func (p planPages) write(t *testing.T, dir string, rows int) {
	t.Helper()
	for name, page := range p {
		text := fmt.Sprintf("%s, with %s in gen_durable. README.md says how to read this.\n\n%s",
			planHeads[name], figure(rows, "row"), strings.Join(page.sections, "\n"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o644)) //nolint:gosec // a page for all to read
	}
}

// reads reports whether a plan touches a table.
func (n *planNode) reads() (yes bool) {
	n.walk(func(n *planNode) { yes = yes || n.Relation != "" || n.Index != "" })
	return yes
}

// drawn returns a plan with a line per node, with its figures or without.
func (n *planNode) drawn(figures bool) string {
	var b strings.Builder
	n.draw(&b, "", figures)
	return b.String()
}

func (n *planNode) draw(b *strings.Builder, indent string, figures bool) {
	b.WriteString(indent)
	if n.Part != "" {
		fmt.Fprintf(b, "%s: ", n.Part)
	}
	switch {
	case n.Does != "":
		b.WriteString(n.Does)
	case n.Join != "" && n.Join != "Inner":
		fmt.Fprintf(b, "%s (%s)", n.Type, strings.ToLower(n.Join))
	default:
		b.WriteString(n.Type)
	}
	if n.Relation != "" {
		fmt.Fprintf(b, " on %s", n.Relation)
	}
	if n.CTE != "" {
		fmt.Fprintf(b, " on %s", n.CTE)
	}
	if n.Index != "" {
		fmt.Fprintf(b, " by %s", n.Index)
	}
	if n.Cond != "" {
		fmt.Fprintf(b, ": %s", short(n.Cond))
	}
	switch {
	case !figures:
		b.WriteString("\n")
	case n.Loops == 0:
		b.WriteString(" [never]\n")
	default:
		fmt.Fprintf(b, " [%s, %s]\n", figure(int(n.Rows*n.Loops), "row"), figure(n.Hit+n.Read, "buffer"))
	}
	for i := range n.Plans {
		n.Plans[i].draw(b, indent+"  ", figures)
	}
}

var spaces = regexp.MustCompile(`\s+`)

// head returns the beginning of a statement's text, in one line.
func head(text string) string { return short(spaces.ReplaceAllString(text, " ")) }

func short(text string) string {
	const most = 110
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// figure writes a number with commas, and what it counts.
func figure(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + what + "s"
}

// The pages of plans have a section for each verb that is measured, and no other, with the indexes
// that must serve it: a change that adds a verb or an index runs make explain.
func TestPlanPagesHaveEveryVerb(t *testing.T) {
	t.Parallel()
	want := map[string][]string{}
	for i := range allMeasures {
		m := &allMeasures[i]
		want[planPageOf(m.verb)] = append(want[planPageOf(m.verb)], m.verb)
	}
	for page, verbs := range want {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", "plans", page+".txt"))
		require.NoError(t, err, "make explain writes it")
		sections := map[string]string{}
		var found []string
		for section := range strings.SplitSeq(string(text), "\n== ") {
			verb, body, _ := strings.Cut(section, "\n")
			if sections[verb] = body; body != "" {
				found = append(found, verb)
			}
		}
		assert.Equal(t, verbs, found, "%s.txt: make explain writes it", page)
		for i := range allMeasures {
			m := &allMeasures[i]
			if slices.Contains(verbs, m.verb) {
				for index := range strings.FieldsSeq(m.indexes) {
					assert.Regexp(t, `; served by .*\b`+index+`\b`, sections[m.verb], m.verb)
					assert.Contains(t, string(text), "by "+index, m.verb)
				}
			}
		}
	}
}
