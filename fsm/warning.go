package fsm

import (
	"errors"
	"fmt"
	"slices"
)

// WarningKind says what is odd about a definition.
type WarningKind string

// These are the kinds of warnings.
const (
	// WarningUnreachable: no way leads to this step from the initial one, nor from one to which a
	// migration brings instances of an older version. Only an instance whose spec names the step
	// begins there.
	WarningUnreachable WarningKind = "unreachable"
	// WarningDeadEnd: the machine declares its ends (steps with an empty To), and no way leads from
	// this step to such an end.
	WarningDeadEnd WarningKind = "dead_end"
	// WarningUnserved: engine.New was given queues, and the one that the machine declares is none of
	// them. Its instances stand still unless another process serves it, or their specs name another. A
	// node of a machine that names no queue is in its graph's, and needs "default" not at all.
	WarningUnserved WarningKind = "unserved"
)

// Warning is something about a definition that works but is seldom meant: a forgotten arrow,
// mostly. engine.New logs it; [Check] returns it as an error.
type Warning struct { //nolint:errname // it is an error only where Check makes it one
	Machine string      `json:"machine"`
	Version int         `json:"version"`
	Step    string      `json:"step"` // "": of the machine
	Kind    WarningKind `json:"kind"`
	Queue   string      `json:"queue,omitempty"` // of WarningUnserved
}

func (w Warning) Error() string {
	if w.Kind == WarningUnserved {
		return fmt.Sprintf("machine %.80q version %d: this engine does not serve its queue, %.80q: another process has to, unless specs or graphs name another queue", w.Machine, w.Version, w.Queue)
	}
	why := "no way leads to it from the initial step"
	if w.Kind == WarningDeadEnd {
		why = "no way leads from it to a step at which the machine ends"
	}
	return fmt.Sprintf("machine %.80q version %d: steps[%.80q]: %s", w.Machine, w.Version, w.Step, why)
}

// Check returns all faults of a definition, each a *[DefinitionError], and all warnings, each a
// [Warning], joined; nil if there are none. It is for a test of the machine: engine.New refuses
// faults and only logs warnings. A type that [JSON.CheckType] refuses is a fault, too; give the
// codec that your engine.Config has, if it is another.
func Check(d Definition, codec ...Codec) error {
	if d == nil {
		return errors.New("the definition is nil: want one that Define or Job returned")
	}
	m := d.erase()
	errs := m.Faults
	if len(codec) == 0 {
		codec = []Codec{JSON{}}
	}
	if m.TypeFaults != nil {
		for _, c := range codec {
			errs = append(errs, m.TypeFaults(c)...)
		}
	}
	for _, w := range DiagramOf(d).Warnings() {
		errs = append(errs, w)
	}
	return errors.Join(errs...)
}

// Warnings returns what is odd about the steps, in the order of the steps. A step without To may
// lead to every step, and so warns of nothing behind it. Warnings looks for dead ends only where a
// step declares that the machine ends there, by an empty To: every step may end an instance, so a
// machine that declares no end may well have one.
func (g Diagram) Warnings() []Warning {
	steps := make(map[string]DiagramStep, len(g.Steps))
	from := map[string][]string{} // the steps that lead to a step
	begin := []string{g.Initial}
	var ends []string
	for _, s := range g.Steps {
		steps[s.Name] = s
		if s.Entered {
			begin = append(begin, s.Name)
		}
		for _, to := range s.To {
			from[to] = append(from[to], s.Name)
		}
		if s.Anywhere || len(s.To) == 0 {
			ends = append(ends, s.Name)
		}
	}
	declared := slices.ContainsFunc(g.Steps, func(s DiagramStep) bool { return !s.Anywhere && len(s.To) == 0 })
	reached := reach(begin, func(name string) []string { return steps[name].To })
	all := steps[g.Initial].Name == "" || slices.ContainsFunc(g.Steps, func(s DiagramStep) bool { return s.Anywhere && reached[s.Name] })
	ending := reach(ends, func(name string) []string { return from[name] })
	var out []Warning
	for _, s := range g.Steps {
		if !all && !reached[s.Name] {
			out = append(out, Warning{Machine: g.Machine, Version: g.Version, Step: s.Name, Kind: WarningUnreachable})
		}
		if declared && !ending[s.Name] {
			out = append(out, Warning{Machine: g.Machine, Version: g.Version, Step: s.Name, Kind: WarningDeadEnd})
		}
	}
	return out
}

// Has reports whether there is a step of that name.
func (g Diagram) Has(step string) bool {
	return slices.ContainsFunc(g.Steps, func(s DiagramStep) bool { return s.Name == step })
}

// Leads reports whether a way leads from one step to another one. A step leads to itself.
func (g Diagram) Leads(from, to string) bool {
	steps := make(map[string]DiagramStep, len(g.Steps))
	for _, s := range g.Steps {
		steps[s.Name] = s
	}
	reached := reach([]string{from}, func(name string) []string { return steps[name].To })
	return reached[to] || slices.ContainsFunc(g.Steps, func(s DiagramStep) bool { return s.Anywhere && reached[s.Name] })
}

// reach returns all names that next leads to, from some names on, these included.
func reach(names []string, next func(string) []string) map[string]bool {
	seen := map[string]bool{}
	for len(names) > 0 {
		name := names[len(names)-1]
		if names = names[:len(names)-1]; !seen[name] {
			seen[name] = true
			names = append(names, next(name)...)
		}
	}
	return seen
}
