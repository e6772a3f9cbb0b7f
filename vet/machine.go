package vet

import (
	"go/ast"
	"go/types"
)

// machine is a call of Define, and what the methods called on its result say.
type machine struct {
	name    string // as declared; else the expression that stands for the machine
	object  types.Object
	define  *ast.CallExpr
	initial string // "": not known
	steps   []stepDef
	open    bool // it may have steps that are not in steps

	handlers []ast.Expr
	unless   []ast.Expr // the steps that its Unless names
	elsewhere,
	migrates bool // other code may give it a handler; instances come from another version
}

// stepDef is a step of a machine.
type stepDef struct {
	name string
	at   ast.Expr   // its name
	code ast.Expr   // its function
	to   []ast.Expr // of To
	only bool       // To was called
}

func (m *machine) has(step string) bool {
	for _, s := range m.steps {
		if s.name == step {
			return true
		}
	}
	return false
}

func (m *machine) names() (all []string) {
	for _, s := range m.steps {
		all = append(all, s.name)
	}
	return all
}

func (u *unit) findMachines() {
	u.each(func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok && u.callee(call) == (callee{fsmPath, "Machine", "Define"}) {
			u.machines = append(u.machines, u.machine(call))
		}
	})
}

func (u *unit) machine(define *ast.CallExpr) *machine {
	m := &machine{define: define, open: define.Ellipsis.IsValid()}
	m.object, m.name, m.initial = u.declaration(receiver(define))
	for _, arg := range define.Args {
		s, ok := u.step(arg)
		if !ok {
			m.open = true
			continue
		}
		m.steps = append(m.steps, s)
	}
	u.follow(m)
	return m
}

// follow reads the methods that are called on what Define returns.
func (u *unit) follow(m *machine) {
	for at := ast.Node(m.define); ; {
		sel, ok := u.parents[at].(*ast.SelectorExpr)
		if !ok {
			switch u.parents[at].(type) {
			case *ast.ReturnStmt, *ast.CompositeLit, *ast.CallExpr:
			default:
				m.elsewhere = true
			}
			return
		}
		call, ok := u.parents[sel].(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		switch sel.Sel.Name {
		case "OnError":
			m.handlers = append(m.handlers, call.Args[0])
		case "Unless":
			m.unless = append(m.unless, call.Args[0])
		case "From":
			m.migrates = true
		}
		at = call
	}
}

// declaration finds what is declared of a machine: its variable, its name and its initial step. The
// step is "" if that is not in this package.
func (u *unit) declaration(e ast.Expr) (o types.Object, name, initial string) {
	if e == nil {
		return nil, "", ""
	}
	name = types.ExprString(e)
	value := e
	switch e := e.(type) {
	case *ast.Ident:
		o = u.TypesInfo.Uses[e]
	case *ast.SelectorExpr:
		o = u.TypesInfo.Uses[e.Sel]
	}
	if v, ok := o.(*types.Var); ok {
		if v.IsField() || u.reassigned(v) {
			return o, name, ""
		}
		value = u.declared(v)
	}
	call, ok := value.(*ast.CallExpr)
	if !ok || u.callee(call) != (callee{fsmPath, "", "Declare"}) || len(call.Args) == 0 {
		return o, name, ""
	}
	if text, known := u.text(call.Args[0]); known {
		name = text
	}
	return o, name, u.initial(call)
}

func (u *unit) initial(declare *ast.CallExpr) string {
	initial := "start"
	if declare.Ellipsis.IsValid() {
		return ""
	}
	for _, option := range declare.Args[1:] {
		call, ok := option.(*ast.CallExpr)
		if !ok || u.callee(call).path != fsmPath {
			return ""
		}
		if u.callee(call).name != "Initial" || len(call.Args) == 0 {
			continue
		}
		var known bool
		if initial, known = u.text(call.Args[0]); !known {
			return ""
		}
	}
	return initial
}

func (u *unit) reassigned(v *types.Var) bool {
	for _, use := range u.uses[v] {
		switch parent := u.parents[use].(type) {
		case *ast.AssignStmt:
			for _, left := range parent.Lhs {
				if left == use {
					return true
				}
			}
		case *ast.UnaryExpr:
			return true
		}
	}
	return false
}

// step reads the definition of a step: fsm.Step("name", f).To("other").Timeout(t).
func (u *unit) step(e ast.Expr) (s stepDef, ok bool) {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return s, false
	}
	switch c := u.callee(call); {
	case c == callee{fsmPath, "", "Step"} || c == callee{fsmPath, "", "BatchStep"}:
		if len(call.Args) < 2 {
			return s, false
		}
		s.at, s.code = call.Args[0], call.Args[1]
		s.name, ok = u.text(s.at)
		return s, ok
	case c.path == fsmPath && c.of == "StepDef":
		if s, ok = u.step(receiver(call)); ok && c.name == "To" {
			if call.Ellipsis.IsValid() {
				return s, false
			}
			s.to, s.only = call.Args, true
		}
		return s, ok
	}
	return s, false
}

// code is the code that may run for a step: the function, and what it names of this package.
type code struct {
	roots []root
	open  bool // other code, which is not seen here, may make outcomes
}

// root is a part of a code. It is of a declared function, or stands where the machine is defined.
type root struct {
	node ast.Node
	of   *types.Func // nil: it stands at the definition
}

// reach finds the code behind an expression that is a function.
func (u *unit) reach(e ast.Expr) code {
	var c code
	if _, literal := ast.Unparen(e).(*ast.FuncLit); !literal && u.local(e) == nil {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		c.open = !ok || u.local(call.Fun) == nil
	}
	c.roots = []root{{node: e}}
	seen := map[*types.Func]bool{}
	for i := 0; i < len(c.roots); i++ {
		ast.Inspect(c.roots[i].node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				f, ok := u.TypesInfo.Uses[n].(*types.Func)
				if ok {
					f = f.Origin()
				}
				if ok && !seen[f] && u.decls[f] != nil && concerns(f.Signature()) {
					seen[f] = true
					c.roots = append(c.roots, root{u.decls[f].Body, f})
				}
				c.open = c.open || isVisit(u.typeOf(n)) && u.leaves(n)
			case *ast.CallExpr:
				if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && decides(signatureOf(u.typeOf(n.Fun))) {
					_, named := u.TypesInfo.Uses[sel.Sel].(*types.Func)
					c.open = c.open || !named || u.local(n.Fun) == nil && u.callee(n).path != fsmPath
				}
			}
			return true
		})
	}
	return c
}

func signatureOf(t types.Type) *types.Signature {
	s, _ := t.(*types.Signature)
	return s
}

// concerns reports whether a function has to do with outcomes: it takes a visit, or returns one, an
// outcome or something that makes one.
func concerns(s *types.Signature) bool {
	for _, t := range []*types.Tuple{s.Params(), s.Results()} {
		for v := range t.Variables() {
			if mentions(v.Type()) {
				return true
			}
		}
	}
	return false
}

func mentions(t types.Type) bool {
	if path, name := named(t); path == fsmPath {
		switch name {
		case "Visit", "Outcome", "StepDef", "NextOutcome", "AwaitOutcome", "ChildrenOutcome", "EndOutcome", "AnyVisit":
			return true
		}
	}
	switch t := types.Unalias(t).(type) {
	case *types.Signature:
		return concerns(t)
	case *types.Slice:
		return mentions(t.Elem())
	}
	return false
}

// leaves reports whether a visit goes where this package cannot see what is done with it.
func (u *unit) leaves(id *ast.Ident) bool {
	if u.TypesInfo.Defs[id] != nil {
		return false
	}
	switch parent := u.parents[id].(type) {
	case *ast.SelectorExpr:
		return parent.X != id // a field that holds a visit
	case *ast.CallExpr:
		return u.local(parent.Fun) == nil && u.callee(parent).path != fsmPath
	case *ast.Field, *ast.BinaryExpr, *ast.RangeStmt:
		return false
	}
	return true
}

// accounted reports whether all uses of a function are in code of the machines of this package.
type accounts struct {
	u     *unit
	reach map[*types.Func]bool // functions that a machine of this package reaches
	known map[*types.Func]bool
	own   bool // exported helpers count, too, if their visits are of states that this package declares
}

func (a *accounts) accounted(f *types.Func) bool {
	if is, done := a.known[f]; done {
		return is
	}
	a.known[f] = true // a function that calls itself adds nothing
	ok := a.reach[f] && (!a.exported(f) || a.own && a.ofOwnState(f))
	for _, use := range a.u.uses[f] {
		ok = ok && a.inside(use)
	}
	a.known[f] = ok
	return ok
}

// ofOwnState reports whether a function is no step itself, but makes an outcome for one, and the
// state of its visit is a type of this package: machines of other packages hardly have it.
func (a *accounts) ofOwnState(f *types.Func) bool {
	if decides(f.Signature()) {
		return false
	}
	visits := 0
	for v := range f.Signature().Params().Variables() {
		if !isVisit(v.Type()) {
			continue
		}
		visit, ok := types.Unalias(types.Unalias(v.Type()).(*types.Pointer).Elem()).(*types.Named)
		if !ok || visit.TypeArgs().Len() == 0 {
			return false
		}
		if path, _ := named(visit.TypeArgs().At(0)); path != a.u.Pkg.Path() {
			return false
		}
		visits++
	}
	return visits > 0
}

func (a *accounts) exported(f *types.Func) bool {
	if !f.Exported() || a.u.Pkg.Name() == "main" {
		return false
	}
	recv := f.Signature().Recv()
	if recv == nil {
		return true
	}
	_, name := named(recv.Type())
	return ast.IsExported(name)
}

// inside reports whether an identifier stands in the definition of a machine, or in a function that
// is accounted for.
func (a *accounts) inside(id *ast.Ident) bool {
	for n := ast.Node(id); n != nil; n = a.u.parents[n] {
		switch n := n.(type) {
		case *ast.CallExpr:
			if c := a.u.callee(n); c.path == fsmPath && (c.of == "Machine" && c.name == "Define" || c.of == "Defined" && c.name == "OnError") {
				return true
			}
		case *ast.FuncDecl:
			f, ok := a.u.TypesInfo.Defs[n.Name].(*types.Func)
			return ok && a.accounted(f)
		}
	}
	return false
}
