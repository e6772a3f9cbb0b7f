package scaffold

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

// Plan is a machine that can be written.
type Plan struct {
	*Column
	Package string
	Machine string
	Initial string
	Steps   []Step
	Without []string // the values that no transition names: they have no step

	diagram fsm.Diagram
}

// Step is a status that is a step.
type Step struct {
	Value string
	Name  string   // in Go names
	To    []string // the statuses that may follow; empty: the machine ends
	Waits bool     // for a signal
}

// Ends reports whether no transition leads from the step.
func (s Step) Ends() bool { return len(s.To) == 0 }

// Works reports whether the program's own code decides where the machine goes on.
func (s Step) Works() bool { return !s.Ends() && !s.Waits }

// Leads returns the steps that may follow. A step that waits awaits its signal at itself.
func (s Step) Leads() []string {
	if s.Waits {
		return append([]string{s.Value}, s.To...)
	}
	return s.To
}

// Plan checks a choice, and plans the machine of a column in a package.
func (c *Column) Plan(pkg string, of Choice) (*Plan, error) {
	p := &Plan{Column: c, Package: pkg, Machine: cmp.Or(of.Machine, c.Machine, strings.Join(words(c.Entity), "_"))}
	if c.Machine != "" && p.Machine != c.Machine {
		return nil, wrong("--machine", "%q, but the mixin of schema %s says that machine %q drives it: leave the flag out", of.Machine, c.Entity, c.Machine)
	}
	if len(p.Machine) > fsm.MaxNameBytes {
		return nil, wrong("--machine", "%d bytes, at most %d", len(p.Machine), fsm.MaxNameBytes)
	}
	to, err := c.transitions(of.Transitions)
	if err != nil {
		return nil, err
	}
	for _, v := range of.Waits {
		if len(to[v]) == 0 {
			return nil, wrong("--wait", "no transition leads from %q, so it waits for nothing; transitions lead from %s", v, listed(c.from(to)))
		}
	}
	if err := p.steps(to, of.Waits); err != nil {
		return nil, err
	}
	if err := p.begin(of.Initial); err != nil {
		return nil, err
	}
	return p, p.check()
}

// transitions reads the transitions.
func (c *Column) transitions(given []string) (map[string][]string, error) {
	to := map[string][]string{}
	for _, one := range given {
		from, rest, ok := c.cut(one, ":")
		for ok && rest != "" {
			var next string
			if next, rest, ok = c.cut(rest, ","); !ok {
				break
			}
			if next == from {
				return nil, wrong("--transition", "%q leads to itself, which is no transition: leave it out", from)
			}
			if !slices.Contains(to[from], next) {
				to[from] = append(to[from], next)
			}
		}
		if !ok || len(to[from]) == 0 {
			return nil, wrong("--transition", "%q is not FROM:TO or FROM:TO,TO, with values of %s.%s: %s", one, c.Entity, c.Field, listed(c.Values))
		}
	}
	if len(to) == 0 {
		return nil, wrong("--transition", "none, and an enum does not say which value may follow which. %s.%s has %s: name the transitions, such as %s",
			c.Entity, c.Field, listed(c.Values), c.example())
	}
	return to, nil
}

// cut takes a value off the front of a text, up to a separator, which the value itself may contain.
func (c *Column) cut(text, separator string) (value, rest string, ok bool) {
	for _, v := range c.Values {
		after, found := strings.CutPrefix(text, v)
		if !found || ok && len(v) < len(value) {
			continue
		}
		if next, found := strings.CutPrefix(after, separator); found {
			value, rest, ok = v, next, true
		} else if after == "" && separator == "," {
			value, rest, ok = v, "", true
		}
	}
	return value, rest, ok
}

// example is a command line with the values in their order.
func (c *Column) example() string {
	if len(c.Values) < 2 {
		return "--transition FROM:TO"
	}
	text := "--transition '" + c.Values[0] + ":" + c.Values[1] + "'"
	if len(c.Values) > 2 {
		text += " --transition '" + c.Values[1] + ":" + strings.Join(c.Values[2:], ",") + "'"
	}
	return text
}

func (c *Column) from(to map[string][]string) (from []string) {
	for _, v := range c.Values {
		if len(to[v]) > 0 {
			from = append(from, v)
		}
	}
	return from
}

// mostBytes bounds a value, so that two of them make the name of a signal.
const mostBytes = (fsm.MaxNameBytes - 1) / 2

// steps makes a step of each value that a transition names.
func (p *Plan) steps(to map[string][]string, waits []string) error {
	named := map[string]bool{}
	for from, all := range to {
		named[from] = true
		for _, v := range all {
			named[v] = true
		}
	}
	var values []string
	for _, v := range p.Values {
		switch {
		case !named[v]:
			p.Without = append(p.Without, v)
		case len(v) > mostBytes:
			return wrong("column", "the value %.20q… has %d bytes, and the name of a step at most %d", v, len(v), mostBytes)
		default:
			values = append(values, v)
		}
	}
	for i, name := range goNames(values) {
		v := values[i]
		p.Steps = append(p.Steps, Step{Value: v, Name: name, To: to[v], Waits: slices.Contains(waits, v)})
	}
	return nil
}

// begin finds the status of new rows.
func (p *Plan) begin(given string) error {
	led := map[string]bool{}
	for _, s := range p.Steps {
		for _, to := range s.To {
			led[to] = true
		}
	}
	p.Initial = cmp.Or(given, p.Default)
	if p.Initial == "" {
		p.Initial = p.Steps[0].Value
		if first := slices.IndexFunc(p.Steps, func(s Step) bool { return !led[s.Value] }); first >= 0 {
			p.Initial = p.Steps[first].Value
		}
	}
	at := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Value == p.Initial })
	if at < 0 || p.Steps[at].Ends() {
		return wrong("--initial", "new rows have the status %q, from which no transition leads: name one by --transition, or another status", p.Initial)
	}
	return nil
}

// check refuses a machine of which [fsm.Check] would complain.
func (p *Plan) check() error {
	var steps []fsm.StepDef[string, fsm.None]
	for _, s := range p.Steps {
		steps = append(steps, fsm.Step(s.Value, func(context.Context, *fsm.Visit[string, fsm.None]) (fsm.Outcome, error) { return nil, nil }).To(s.Leads()...))
	}
	p.diagram = fsm.DiagramOf(fsm.Declare[string, fsm.None](p.Machine, fsm.Initial(p.Initial)).Define(steps...))
	var faults []error
	for _, w := range p.diagram.Warnings() {
		if w.Kind == fsm.WarningDeadEnd {
			faults = append(faults, wrong("--transition", "from %q no way leads to an end: name the transition that is missing", w.Step))
		} else {
			faults = append(faults, wrong("--transition", "no way leads to %q from %q, the status of new rows: name the transition that is missing, "+
				"or another status of new rows by --initial", w.Step, p.Initial))
		}
	}
	return errors.Join(faults...)
}

// Mixin returns the call of package entity that the schema needs; "": it has it.
func (p *Plan) Mixin() string {
	if p.Column.Machine != "" {
		return ""
	}
	return "entity.DrivenByName(" + strconv.Quote(p.Machine) + ")"
}
