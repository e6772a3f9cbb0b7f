package vet

import (
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// unread looks for a Done that deletes signals which its machine awaits, if some come late, without
// the program having said so. It is silent about machines of tests, about a Done whose result goes
// elsewhere than out of the step, about a machine to which other code may give an Unless, and about
// one of whose signals not each is named by a variable of a package.
func unread(u *unit) {
	seen := map[ast.Node]bool{}
	for _, m := range u.machines {
		if strings.HasSuffix(filepath.Base(u.Fset.Position(m.define.Pos()).Filename), "_test.go") {
			continue
		}
		decided, sure := u.decided(m)
		if !sure {
			continue
		}
		awaited, ends := u.left(m, decided)
		for _, end := range ends {
			if awaited != nil && !seen[end] {
				seen[end] = true
				u.found(end.Pos(), "machine %q awaits %s, and this Done deletes one that is still unread: go on at another step by Unless, or say Discard",
					m.name, awaited.Name())
			}
		}
	}
}

// left returns the first signal that a machine awaits and does not decide about, nil if there is
// none or it may await others, and each Done that would delete it.
func (u *unit) left(m *machine, decided map[types.Object]bool) (awaited types.Object, ends []*ast.CallExpr) {
	sure := true
	look := func(call *ast.CallExpr) {
		signals, known := u.awaits(call)
		sure = sure && known
		for _, s := range signals {
			if awaited == nil && !decided[s] {
				awaited = s
			}
		}
		if u.callee(call) == (callee{fsmPath, "Visit", "Done"}) && u.plainEnd(call) {
			ends = append(ends, call)
		}
	}
	for _, e := range m.code() {
		for _, r := range u.reach(e).roots {
			calls(r.node, look)
		}
	}
	if !sure {
		return nil, nil
	}
	return awaited, ends
}

// code returns the functions of a machine's steps and its handlers.
func (m *machine) code() (all []ast.Expr) {
	for i := range m.steps {
		all = append(all, m.steps[i].code)
	}
	return append(all, m.handlers...)
}

// awaits returns the signals for which an outcome waits; known is false if not each is named by a
// variable of a package.
func (u *unit) awaits(call *ast.CallExpr) (all []types.Object, known bool) {
	args := call.Args
	switch u.callee(call) {
	case callee{fsmPath, "Visit", "Await"}:
		args = args[min(2, len(args)):]
	case callee{fsmPath, "ChildrenOutcome", "Or"}:
	default:
		return nil, true
	}
	if call.Ellipsis.IsValid() {
		return nil, false
	}
	for _, arg := range args {
		s := u.signal(arg)
		if s == nil {
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

// signal returns the variable of a package that an expression names, if nothing but its declaration
// says which signal it holds.
func (u *unit) signal(e ast.Expr) types.Object {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if sel, selects := ast.Unparen(e).(*ast.SelectorExpr); selects {
		id, ok = sel.Sel, true
	}
	if !ok {
		return nil
	}
	v, ok := u.TypesInfo.Uses[id].(*types.Var)
	if !ok || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() || !is(v.Type(), fsmPath, "Signal") {
		return nil
	}
	if v.Pkg() == u.Pkg {
		if _, made := u.declared(v).(*ast.CallExpr); !made || u.reassigned(v) {
			return nil
		}
	}
	return v
}

// plainEnd reports whether a Done is what a step returns, with neither Unless nor Discard. A
// function that returns no Outcome, but the end itself, leaves both to its caller.
func (u *unit) plainEnd(done *ast.CallExpr) bool {
	for at := ast.Node(done); ; {
		switch parent := u.parents[at].(type) {
		case *ast.ParenExpr:
			at = parent
		case *ast.ReturnStmt:
			s, _ := u.signature(u.enclosing(parent))
			i := slices.IndexFunc(parent.Results, func(r ast.Expr) bool { return r == at })
			return s != nil && i >= 0 && i < s.Results().Len() && is(s.Results().At(i).Type(), fsmPath, "Outcome")
		case *ast.SelectorExpr:
			call, ok := u.parents[parent].(*ast.CallExpr)
			if !ok || parent.Sel.Name == "Unless" || parent.Sel.Name == "Discard" {
				return false
			}
			at = call
		default:
			return false
		}
	}
}

// decided returns the signals that the Unless of a machine names; sure is false if it may name
// others.
func (u *unit) decided(m *machine) (signals map[types.Object]bool, sure bool) {
	if m.open {
		return nil, false
	}
	signals = map[types.Object]bool{}
	note := func(call *ast.CallExpr) bool {
		if call.Ellipsis.IsValid() {
			return false
		}
		for _, arg := range call.Args[min(1, len(call.Args)):] {
			s := u.signal(arg)
			if s == nil {
				return false
			}
			signals[s] = true
		}
		return true
	}
	for at := ast.Node(m.define); ; {
		switch parent := u.parents[at].(type) {
		case *ast.ParenExpr:
			at = parent
			continue
		case *ast.SelectorExpr:
			call, ok := u.parents[parent].(*ast.CallExpr)
			if !ok || parent.Sel.Name == "Unless" && !note(call) {
				return nil, false
			}
			at = call
			continue
		case *ast.ValueSpec, *ast.AssignStmt:
			return signals, u.held(at, parent, note)
		}
		return signals, u.erased(at)
	}
}

// held reports whether all that is done with a variable which holds a machine is known. It hands on
// each Unless that is called on it.
func (u *unit) held(value, parent ast.Node, note func(*ast.CallExpr) bool) bool {
	var names []*ast.Ident
	var values []ast.Expr
	switch parent := parent.(type) {
	case *ast.ValueSpec:
		names, values = parent.Names, parent.Values
	case *ast.AssignStmt:
		values = parent.Rhs
		for _, left := range parent.Lhs {
			id, _ := left.(*ast.Ident)
			names = append(names, id)
		}
	}
	i := slices.IndexFunc(values, func(e ast.Expr) bool { return e == value })
	if i < 0 || len(names) != len(values) || names[i] == nil {
		return false
	}
	v := u.TypesInfo.Defs[names[i]]
	if v == nil {
		return false
	}
	if v.Exported() && u.Pkg.Name() != "main" && v.Parent() == u.Pkg.Scope() && is(v.Type(), fsmPath, "Defined") {
		return false // another package may call its methods
	}
	for _, use := range u.uses[v] {
		sel, ok := u.parents[use].(*ast.SelectorExpr)
		if !ok {
			if !u.erased(use) {
				return false
			}
			continue
		}
		call, ok := u.parents[sel].(*ast.CallExpr)
		if !ok || sel.X != use || sel.Sel.Name == "Unless" && !note(call) {
			return false
		}
	}
	return true
}

// erased reports whether a machine becomes a Definition here, which has no methods.
func (u *unit) erased(n ast.Node) bool {
	e, ok := n.(ast.Expr)
	if !ok {
		return false
	}
	if is(u.typeOf(e), fsmPath, "Definition") {
		return true
	}
	var to types.Type
	switch parent := u.parents[n].(type) {
	case *ast.CallExpr:
		s := signatureOf(u.typeOf(parent.Fun))
		i := slices.IndexFunc(parent.Args, func(arg ast.Expr) bool { return arg == e })
		if s == nil || i < 0 {
			return false
		}
		if last := s.Params().Len() - 1; s.Variadic() && i >= last {
			slice, ok := s.Params().At(last).Type().(*types.Slice)
			if !ok {
				return false
			}
			to = slice.Elem()
		} else {
			to = s.Params().At(i).Type()
		}
	case *ast.ReturnStmt:
		s, _ := u.signature(u.enclosing(parent))
		i := slices.IndexFunc(parent.Results, func(r ast.Expr) bool { return r == e })
		if s == nil || i < 0 || i >= s.Results().Len() {
			return false
		}
		to = s.Results().At(i).Type()
	case *ast.CompositeLit:
		switch t := u.typeOf(parent).Underlying().(type) {
		case *types.Slice:
			to = t.Elem()
		case *types.Array:
			to = t.Elem()
		}
	}
	return to != nil && is(to, fsmPath, "Definition")
}
