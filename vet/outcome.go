package vet

import (
	"go/ast"
	"go/token"
	"go/types"
)

// outcomes looks for an outcome that is returned beside an error that is surely not nil.
func outcomes(u *unit) {
	u.each(func(n ast.Node) {
		ret, ok := n.(*ast.ReturnStmt)
		if !ok || len(ret.Results) != 2 || isNil(ret.Results[0]) || isNil(ret.Results[1]) {
			return
		}
		if s, _ := u.signature(u.enclosing(ret)); decides(s) && u.makesOutcome(ret.Results[0]) && u.fails(ret.Results[1], ret) {
			u.found(ret.Pos(), "the engine ignores an outcome beside an error: return nil with the error, or the outcome with nil")
		}
	})
}

// makesOutcome reports whether an expression is an outcome that a call makes: it is not nil.
func (u *unit) makesOutcome(e ast.Expr) bool {
	e = ast.Unparen(e)
	if id, ok := e.(*ast.Ident); ok {
		e = u.once(id)
	}
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	c := u.callee(call)
	if c.path == module+"engine" {
		return c.name == "InTx"
	}
	switch c.of {
	case "Visit", "NextOutcome", "AwaitOutcome", "ChildrenOutcome", "EndOutcome":
		return c.path == fsmPath
	}
	return false
}

// fails reports whether an error that is returned is surely not nil.
func (u *unit) fails(e ast.Expr, ret *ast.ReturnStmt) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		switch u.callee(e) {
		case callee{"errors", "", "New"}, callee{"fmt", "", "Errorf"}:
			return true
		case callee{fsmPath, "", "Permanent"}:
			return len(e.Args) == 1 && u.fails(e.Args[0], ret)
		case callee{fsmPath, "", "Again"}:
			return true
		}
	case *ast.UnaryExpr:
		_, literal := ast.Unparen(e.X).(*ast.CompositeLit)
		return e.Op == token.AND && literal
	case *ast.SelectorExpr:
		return sentinel(u.TypesInfo.Uses[e.Sel])
	case *ast.Ident:
		o := u.TypesInfo.Uses[e]
		if value, ok := u.once(e).(*ast.CallExpr); ok && u.fails(value, ret) {
			return true
		}
		return sentinel(o) || u.knownToFail(o, ret)
	}
	return false
}

// sentinel reports whether a variable is an error of a package, as io.EOF.
func sentinel(o types.Object) bool {
	v, ok := o.(*types.Var)
	return ok && !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() &&
		types.Identical(v.Type(), types.Universe.Lookup("error").Type())
}

// knownToFail reports whether a return stands in an if whose condition says that an error is not
// nil, with nothing assigned to it in between.
func (u *unit) knownToFail(err types.Object, ret *ast.ReturnStmt) bool {
	if err == nil {
		return false
	}
	for n := ast.Node(ret); n != nil; n = u.parents[n] {
		above, ok := u.parents[n].(*ast.IfStmt)
		if _, function := n.(*ast.FuncLit); function {
			return false
		}
		if !ok || above.Body != n || !u.saysFailed(above.Cond, err) {
			continue
		}
		for _, use := range u.uses[err] {
			if use.Pos() < above.Body.Pos() || use.Pos() > ret.Pos() {
				continue
			}
			switch parent := u.parents[use].(type) {
			case *ast.AssignStmt:
				for _, left := range parent.Lhs {
					if left == use {
						return false
					}
				}
			case *ast.UnaryExpr:
				return false
			}
		}
		return true
	}
	return false
}

func (u *unit) saysFailed(cond ast.Expr, err types.Object) bool {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok {
		return false
	}
	if b.Op == token.LAND {
		return u.saysFailed(b.X, err) || u.saysFailed(b.Y, err)
	}
	id, ok := ast.Unparen(b.X).(*ast.Ident)
	return ok && b.Op == token.NEQ && isNil(b.Y) && u.TypesInfo.Uses[id] == err
}
