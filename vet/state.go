package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/cfg"
)

// states looks for changes of the state that no outcome carries. What a step changes is its own
// copy, v.State, or a copy of that; only what it passes to an outcome is committed.
func states(u *unit) {
	u.each(func(n ast.Node) {
		s, body := u.signature(n)
		if body == nil || !decides(s) {
			return
		}
		for v := range s.Params().Variables() {
			if isVisit(v.Type()) && v.Name() != "" && v.Name() != "_" {
				u.stateChanges(n, body, v)
			}
		}
	})
}

// flow is a function whose changes of the state are followed.
type flow struct {
	u     *unit
	body  *ast.BlockStmt
	visit *types.Var
	graph *cfg.CFG
}

func (u *unit) stateChanges(f ast.Node, body *ast.BlockStmt, visit *types.Var) {
	fl := &flow{u: u, body: body, visit: visit}
	if !fl.plain(visit, f) {
		return
	}
	fl.graph = cfg.New(body, func(call *ast.CallExpr) bool {
		id, ok := call.Fun.(*ast.Ident)
		return !ok || id.Name != "panic"
	})
	for _, w := range fl.writes(visit) {
		if !fl.anyAfter(w, func(n ast.Node) bool { return fl.reads(n, visit) || undecided(n) }) || counts(w) && fl.onlyAsked(w) {
			u.found(w.Pos(), "this change of %s.State is lost: no outcome after it carries %s.State", visit.Name(), visit.Name())
			break
		}
	}
	for _, c := range fl.copies(f) {
		fl.copyChanges(c)
	}
}

// onlyAsked reports whether only conditions read the State after a change of it, and an Again
// follows, which runs the step with the State as it was before. A change in a loop may be meant for
// this run alone.
func (fl *flow) onlyAsked(w ast.Stmt) bool {
	again := func(n ast.Node) (found bool) {
		calls(n, func(call *ast.CallExpr) {
			found = found || fl.u.callee(call) == (callee{fsmPath, "Visit", "Again"})
		})
		return found
	}
	return fl.anyAfter(w, again) && !fl.anyAfter(w, func(n ast.Node) bool {
		return n == w || undecided(n) || fl.reads(n, fl.visit) && !fl.asks(n)
	})
}

// asks reports whether a node is a condition that hands the State to no function.
func (fl *flow) asks(n ast.Node) bool {
	ok := fl.condition(n)
	calls(n, func(call *ast.CallExpr) {
		_, function := fl.u.typeOf(call.Fun).(*types.Signature)
		ok = ok && (!function || !fl.reads(call, fl.visit))
	})
	return ok
}

// condition reports whether a node is the condition of an if or a for, or a part of it.
func (fl *flow) condition(n ast.Node) bool {
	for {
		switch parent := fl.u.parents[n].(type) {
		case *ast.ParenExpr:
			n = parent
		case *ast.UnaryExpr:
			if parent.Op != token.NOT {
				return false
			}
			n = parent
		case *ast.BinaryExpr:
			if parent.Op != token.LAND && parent.Op != token.LOR {
				return false
			}
			n = parent
		case *ast.IfStmt:
			return parent.Cond == n
		case *ast.ForStmt:
			return parent.Cond == n
		default:
			return false
		}
	}
}

// plain reports whether a variable is only used where its uses can be followed: in no closure, and
// never by its address.
func (fl *flow) plain(v *types.Var, f ast.Node) bool {
	for _, use := range fl.u.uses[v] {
		if fl.u.enclosing(use) != f {
			return false
		}
		parent := fl.u.parents[use]
		if v != fl.visit {
			if fl.addressed(use) {
				return false
			}
			continue
		}
		switch parent := parent.(type) {
		case *ast.SelectorExpr:
			if parent.Sel.Name == "State" && fl.addressed(parent) {
				return false
			}
		case *ast.CallExpr:
		default:
			return false
		}
	}
	return true
}

// addressed reports whether an expression, or a part of it, is pointed to: by &, by a method of the
// pointer, by a slice of an array.
func (fl *flow) addressed(e ast.Expr) bool {
	for n := ast.Node(e); ; {
		switch parent := fl.u.parents[n].(type) {
		case *ast.UnaryExpr:
			return parent.Op == token.AND
		case *ast.SliceExpr:
			_, array := fl.u.typeOf(parent.X).Underlying().(*types.Array)
			return array
		case *ast.ParenExpr:
			n = parent
		case *ast.IndexExpr:
			if _, array := fl.u.typeOf(parent.X).Underlying().(*types.Array); !array || parent.X != n {
				return false
			}
			n = parent
		case *ast.SelectorExpr:
			s := fl.u.TypesInfo.Selections[parent]
			if s == nil {
				return false
			}
			if f, ok := s.Obj().(*types.Func); ok {
				_, pointer := types.Unalias(f.Signature().Recv().Type()).(*types.Pointer)
				_, is := types.Unalias(fl.u.typeOf(parent.X)).(*types.Pointer)
				return pointer && !is
			}
			n = parent
		default:
			return false
		}
	}
}

// base returns the variable whose memory an expression is part of; nil if a pointer, a slice or a
// map is on the way. Of a visit only the State counts.
func (fl *flow) base(e ast.Expr) *types.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, _ := fl.u.TypesInfo.ObjectOf(e).(*types.Var)
		if v == fl.visit {
			return nil
		}
		return v
	case *ast.IndexExpr:
		if _, array := fl.u.typeOf(e.X).Underlying().(*types.Array); array {
			return fl.base(e.X)
		}
	case *ast.SelectorExpr:
		if id, ok := ast.Unparen(e.X).(*ast.Ident); ok && fl.u.TypesInfo.Uses[id] == fl.visit {
			if e.Sel.Name == "State" {
				return fl.visit
			}
			return nil
		}
		if s := fl.u.TypesInfo.Selections[e]; s != nil && s.Kind() == types.FieldVal && !s.Indirect() {
			return fl.base(e.X)
		}
	}
	return nil
}

// writes returns the statements of the function that change a variable, or the State of the visit,
// in the order in which they stand.
func (fl *flow) writes(v *types.Var) (all []ast.Stmt) {
	ast.Inspect(fl.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.IncDecStmt:
			if fl.base(n.X) == v {
				all = append(all, n)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				return true
			}
			for _, left := range n.Lhs {
				if fl.base(left) == v {
					all = append(all, n)
					break
				}
			}
		}
		return true
	})
	return all
}

// reads reports whether a node may read a variable, or the State of the visit. What a statement
// only changes it does not read.
func (fl *flow) reads(n ast.Node, v *types.Var) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || found || fl.u.TypesInfo.Uses[id] != v {
			return !found
		}
		if sel, selects := fl.u.parents[id].(*ast.SelectorExpr); selects && v == fl.visit {
			if sel.Sel.Name != "State" {
				found = sel.Sel.Name == "RetryBy"
				return !found
			}
			found = !fl.changed(sel)
			return !found
		}
		found = !fl.changed(id)
		return !found
	})
	return found
}

// changed reports whether an expression stands on the left of an assignment, and is not read there.
func (fl *flow) changed(e ast.Expr) bool {
	for n := ast.Node(e); ; {
		switch parent := fl.u.parents[n].(type) {
		case *ast.SelectorExpr:
			if s := fl.u.TypesInfo.Selections[parent]; s == nil || s.Kind() != types.FieldVal || s.Indirect() {
				return false
			}
			n = parent
		case *ast.IndexExpr:
			if _, array := fl.u.typeOf(parent.X).Underlying().(*types.Array); !array || parent.X != n {
				return false
			}
			n = parent
		case *ast.IncDecStmt:
			return true
		case *ast.AssignStmt:
			for _, left := range parent.Lhs {
				if left == n {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
}

// undecided reports whether a node returns without saying what becomes of the instance: the caller
// goes on with the visit.
func undecided(n ast.Node) bool {
	ret, ok := n.(*ast.ReturnStmt)
	return ok && (len(ret.Results) != 2 || isNil(ret.Results[0]) && isNil(ret.Results[1]))
}

// anyAfter reports whether a node that may run after a statement satisfies a condition.
func (fl *flow) anyAfter(w ast.Stmt, ok func(ast.Node) bool) bool {
	var begin *cfg.Block
	index := -1
	for _, b := range fl.graph.Blocks {
		for i, n := range b.Nodes {
			if n == w || n.Pos() <= w.Pos() && w.End() <= n.End() && index < 0 {
				begin, index = b, i
			}
		}
	}
	if begin == nil {
		return true // not in the graph: nothing is known of it
	}
	seen := map[*cfg.Block]bool{}
	var visit func(nodes []ast.Node, next []*cfg.Block) bool
	visit = func(nodes []ast.Node, next []*cfg.Block) bool {
		if slices.ContainsFunc(nodes, ok) {
			return true
		}
		for _, b := range next {
			if !seen[b] {
				if seen[b] = true; visit(b.Nodes, b.Succs) {
					return true
				}
			}
		}
		return false
	}
	return visit(begin.Nodes[index+1:], begin.Succs)
}

// copies returns the local variables that begin as copies of v.State.
func (fl *flow) copies(f ast.Node) (all []*types.Var) {
	ast.Inspect(fl.body, func(n ast.Node) bool {
		if _, literal := n.(*ast.FuncLit); literal {
			return false
		}
		assign, ok := n.(*ast.AssignStmt)
		if !ok || assign.Tok != token.DEFINE || len(assign.Lhs) != len(assign.Rhs) {
			return true
		}
		for i, left := range assign.Lhs {
			id, named := left.(*ast.Ident)
			if !named || !fl.isState(assign.Rhs[i]) {
				continue
			}
			if v, defined := fl.u.TypesInfo.Defs[id].(*types.Var); defined && fl.plain(v, f) {
				all = append(all, v)
			}
		}
		return true
	})
	return all
}

// isState reports whether an expression is v.State.
func (fl *flow) isState(e ast.Expr) bool {
	sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "State" {
		return false
	}
	id, ok := ast.Unparen(sel.X).(*ast.Ident)
	return ok && fl.u.TypesInfo.Uses[id] == fl.visit
}

// copyChanges reports the first change of a copy that is lost: nothing reads the copy after it, or
// it counts something up, and each outcome after it carries v.State as it was.
func (fl *flow) copyChanges(c *types.Var) {
	for _, w := range fl.writes(c) {
		if fl.replaces(w, c) {
			continue
		}
		dead := !fl.anyAfter(w, func(n ast.Node) bool { return fl.reads(n, c) || undecided(n) })
		if dead || counts(w) && fl.leftBehind(w, c) {
			fl.u.found(w.Pos(), "this change of %s is lost: no outcome after it carries %s", c.Name(), c.Name())
			return
		}
	}
}

// replaces reports whether the copy is replaced as a whole: it is no copy of the state any more.
func (fl *flow) replaces(w ast.Stmt, c *types.Var) bool {
	assign, ok := w.(*ast.AssignStmt)
	if !ok {
		return false
	}
	for _, left := range assign.Lhs {
		if id, whole := ast.Unparen(left).(*ast.Ident); whole && fl.u.TypesInfo.Uses[id] == c {
			return true
		}
	}
	return false
}

// counts reports whether a statement changes a part of a variable by what it was: x.N++, x.N += 2,
// x.All = append(x.All, one).
func counts(w ast.Stmt) bool {
	switch w := w.(type) {
	case *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		if w.Tok != token.ASSIGN {
			return true
		}
		if len(w.Lhs) != 1 || len(w.Rhs) != 1 {
			return false
		}
		call, ok := ast.Unparen(w.Rhs[0]).(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return false
		}
		id, ok := call.Fun.(*ast.Ident)
		return ok && id.Name == "append" && types.ExprString(call.Args[0]) == types.ExprString(w.Lhs[0])
	}
	return false
}

// leftBehind reports whether after a change of a copy each outcome with a state carries v.State,
// which nothing has changed, and the copy goes nowhere as a whole and into no outcome.
func (fl *flow) leftBehind(w ast.Stmt, c *types.Var) bool {
	carried := false
	kept := fl.anyAfter(w, func(n ast.Node) bool {
		if ret, ok := n.(*ast.ReturnStmt); ok && (undecided(n) || fl.reads(ret, c)) {
			return true
		}
		if _, ok := n.(ast.Expr); ok && !fl.condition(n) && fl.reads(n, c) {
			return true // a range or a switch needs it
		}
		other := false
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if fl.u.TypesInfo.Uses[n] == c {
					_, selects := fl.u.parents[n].(*ast.SelectorExpr)
					other = other || !selects
				}
			case *ast.CallExpr:
				if state := fl.u.carries(n); state != nil {
					carried = carried || fl.isState(state)
					other = other || !fl.isState(state)
				}
				for _, arg := range n.Args {
					id, ok := ast.Unparen(arg).(*ast.Ident)
					other = other || ok && fl.u.TypesInfo.Uses[id] == fl.visit
				}
			case ast.Stmt:
				other = other || fl.changesVisit(n)
			}
			return !other
		})
		return other
	})
	return carried && !kept
}

func (fl *flow) changesVisit(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.IncDecStmt:
		return fl.base(s.X) == fl.visit
	case *ast.AssignStmt:
		return slices.ContainsFunc(s.Lhs, func(left ast.Expr) bool { return fl.base(left) == fl.visit })
	}
	return false
}

// carries returns the state that an outcome is given; nil if it has none.
func (u *unit) carries(call *ast.CallExpr) ast.Expr {
	index := -1
	switch u.callee(call) {
	case callee{fsmPath, "Visit", "Next"}, callee{fsmPath, "Visit", "Await"}, callee{fsmPath, "Visit", "ScheduleChildren"},
		callee{fsmPath, "Visit", "ScheduleGraph"}, callee{fsmPath, "Visit", "Rejoin"}:
		index = 1
	case callee{fsmPath, "Visit", "Retry"}, callee{fsmPath, "Visit", "AgainWith"}, callee{fsmPath, "EndOutcome", "With"}:
		index = 0
	}
	if index < 0 || index >= len(call.Args) {
		return nil
	}
	return call.Args[index]
}
