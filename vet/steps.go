package vet

import (
	"go/ast"
	"go/types"
	"slices"

	"github.com/gendurable/gendurable/fsm"
)

// way is an expression that names a step to go to.
type way struct {
	to  ast.Expr
	any bool // by Unless, which To does not bound
}

// at is a step of a machine whose code has a way.
type at struct {
	m    *machine
	step *stepDef // nil: the handler, so any step
}

// ways has the ways of the package, with the steps that may go them.
type ways struct {
	from    map[ast.Expr][]at
	all     []way
	unsure  map[ast.Expr]bool // other code may go it, too
	foreign map[ast.Expr]bool // other code of this package, or any with another state
	open    map[*machine]bool // some of its code is not seen
	targets map[at][]way
}

// steps looks for steps that are named and not there, or cannot be reached.
func steps(u *unit) {
	w := u.ways()
	for _, way := range w.all {
		switch from := w.from[way.to]; {
		case !w.unsure[way.to]:
			u.wrongWay(way, from)
		case !w.foreign[way.to]:
			u.missing(way, from)
		}
	}
	for _, m := range u.machines {
		u.wrongNames(m)
		u.unreachable(m, w)
	}
	u.specs()
}

func (u *unit) ways() *ways {
	w := &ways{from: map[ast.Expr][]at{}, unsure: map[ast.Expr]bool{}, foreign: map[ast.Expr]bool{}, open: map[*machine]bool{}, targets: map[at][]way{}}
	type piece struct {
		at   at
		code code
	}
	var pieces []piece
	a := &accounts{u: u, reach: map[*types.Func]bool{}, known: map[*types.Func]bool{}}
	own := &accounts{u: u, reach: a.reach, known: map[*types.Func]bool{}, own: true}
	add := func(from at, e ast.Expr) {
		p := piece{from, u.reach(e)}
		pieces = append(pieces, p)
		w.open[from.m] = w.open[from.m] || p.code.open
		for _, r := range p.code.roots {
			if r.of != nil {
				a.reach[r.of] = true
			}
		}
	}
	for _, m := range u.machines {
		for i := range m.steps {
			add(at{m, &m.steps[i]}, m.steps[i].code)
		}
		for _, h := range m.handlers {
			add(at{m, nil}, h)
		}
	}
	for _, p := range pieces {
		for _, r := range p.code.roots {
			for _, way := range u.waysOf(r.node) {
				if w.from[way.to] == nil {
					w.all = append(w.all, way)
				}
				w.from[way.to] = append(w.from[way.to], p.at)
				w.targets[p.at] = append(w.targets[p.at], way)
				w.unsure[way.to] = w.unsure[way.to] || r.of != nil && !a.accounted(r.of)
				w.foreign[way.to] = w.foreign[way.to] || r.of != nil && !own.accounted(r.of)
			}
		}
	}
	return w
}

// waysOf finds what a piece of code names as the next step.
func (u *unit) waysOf(n ast.Node) (all []way) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		switch u.callee(call) {
		case callee{fsmPath, "Visit", "Next"}, callee{fsmPath, "Visit", "Await"}, callee{fsmPath, "Visit", "ScheduleChildren"},
			callee{fsmPath, "Visit", "ScheduleGraph"}, callee{fsmPath, "Visit", "Rejoin"}:
			all = append(all, way{call.Args[0], false})
		case callee{fsmPath, "EndOutcome", "Unless"}:
			all = append(all, way{call.Args[0], true})
		}
		return true
	})
	return all
}

// wrongWay reports a way that none of those may go who have it.
func (u *unit) wrongWay(w way, from []at) {
	if to, known := u.text(w.to); known && !u.missing(w, from) {
		u.notAllowed(w, to, from)
	}
}

// missing reports a way to a step that no machine has.
func (u *unit) missing(w way, from []at) bool {
	to, known := u.text(w.to)
	if !known || slices.ContainsFunc(from, func(f at) bool { return f.m.open || f.m.has(to) }) {
		return false
	}
	u.found(w.to.Pos(), "machine %q has no step %q, only %s", from[0].m.name, to, quoted(from[0].m.names()))
	return true
}

// notAllowed reports a way that the To of each step excludes that has it.
func (u *unit) notAllowed(w way, to string, from []at) {
	if w.any {
		return
	}
	for _, f := range from {
		if f.m.open {
			return
		}
		for i := range f.m.steps {
			if s := &f.m.steps[i]; (f.step == nil || f.step == s) && !u.excludes(s, to) {
				return
			}
		}
	}
	if f := from[0]; f.step != nil {
		u.found(w.to.Pos(), "step %q of machine %q has a To without %q", f.step.name, f.m.name, to)
	} else {
		u.found(w.to.Pos(), "no step of machine %q has a To with %q, so its handler cannot lead there", f.m.name, to)
	}
}

func (u *unit) excludes(s *stepDef, to string) bool {
	if !s.only {
		return false
	}
	for _, e := range s.to {
		if name, known := u.text(e); !known || name == to {
			return false
		}
	}
	return true
}

// wrongNames reports names in the definition itself: fsm.Check has the same as faults.
func (u *unit) wrongNames(m *machine) {
	if m.open {
		return
	}
	check := func(e ast.Expr, what string) {
		if name, known := u.text(e); known && !m.has(name) {
			u.found(e.Pos(), "%s: machine %q has no step %q, only %s", what, m.name, name, quoted(m.names()))
		}
	}
	for _, s := range m.steps {
		for _, to := range s.to {
			check(to, "To")
		}
	}
	for _, e := range m.unless {
		check(e, "Unless")
	}
	if m.initial != "" && len(m.steps) > 0 && !m.has(m.initial) {
		u.found(m.define.Pos(), "machine %q begins at step %q, which it does not have: define it, or declare another with fsm.Initial", m.name, m.initial)
	}
}

// unreachable reports steps to which no way leads, by the rule of fsm.Check. A step without To may
// lead where its code does, if all of its code is seen.
func (u *unit) unreachable(m *machine, w *ways) {
	entered, known := u.entered()
	if m.open || m.initial == "" || m.migrates || !known || !m.has(m.initial) {
		return
	}
	g := fsm.Diagram{Machine: m.name, Initial: m.initial}
	for i := range m.steps {
		g.Steps = append(g.Steps, u.graphStep(m, &m.steps[i], w, slices.Contains(entered, m.steps[i].name)))
	}
	for _, odd := range g.Warnings() {
		if odd.Kind != fsm.WarningUnreachable {
			continue
		}
		for _, s := range m.steps {
			if s.name == odd.Step {
				u.found(s.at.Pos(), "no way leads to step %q of machine %q from its first one, %q", s.name, m.name, m.initial)
				break
			}
		}
	}
}

func (u *unit) graphStep(m *machine, s *stepDef, w *ways, entered bool) fsm.DiagramStep {
	out := fsm.DiagramStep{Name: s.name, Entered: entered}
	lead := func(e ast.Expr) {
		if name, known := u.text(e); known {
			out.To = append(out.To, name)
		} else {
			out.Anywhere = true
		}
	}
	for _, e := range append(slices.Clone(s.to), m.unless...) {
		lead(e)
	}
	if s.only {
		return out
	}
	out.Anywhere = out.Anywhere || w.open[m] || m.elsewhere
	for _, way := range append(slices.Clone(w.targets[at{m, s}]), w.targets[at{m, nil}]...) {
		lead(way.to)
	}
	return out
}

// entered returns the steps at which instances may begin, or come to by an Unless, anywhere in the
// package; known is false if some are no constants.
func (u *unit) entered() (names []string, known bool) {
	known = true
	u.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		switch u.callee(call) {
		case callee{fsmPath, "Spec", "Step"}, callee{fsmPath, "EndOutcome", "Unless"}:
			name, constant := u.text(call.Args[0])
			names, known = append(names, name), known && constant
		}
	})
	return names, known
}

// specs reports instances that are to begin at a step that their machine does not have.
func (u *unit) specs() {
	u.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || u.callee(call) != (callee{fsmPath, "Spec", "Step"}) || len(call.Args) != 1 {
			return
		}
		name, known := u.text(call.Args[0])
		from, _, _ := u.declaration(u.specOf(call))
		if !known || from == nil {
			return
		}
		var of []*machine
		for _, m := range u.machines {
			if m.object == from {
				of = append(of, m)
			}
		}
		if len(of) > 0 && !slices.ContainsFunc(of, func(m *machine) bool { return m.open || m.has(name) }) {
			u.found(call.Args[0].Pos(), "machine %q has no step %q, only %s", of[0].name, name, quoted(of[0].names()))
		}
	})
}

// specOf returns the machine of a spec that is made and changed in one expression.
func (u *unit) specOf(call *ast.CallExpr) ast.Expr {
	for {
		switch c := u.callee(call); {
		case c == callee{fsmPath, "Machine", "New"}:
			return receiver(call)
		case c.path == fsmPath && c.of == "Spec":
			next, ok := receiver(call).(*ast.CallExpr)
			if !ok {
				return nil
			}
			call = next
		default:
			return nil
		}
	}
}
