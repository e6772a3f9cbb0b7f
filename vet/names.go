package vet

import (
	"go/ast"
	"go/constant"
	"go/types"
	"strconv"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// named returns the path and the name of a declared type, or of one that a pointer leads to.
func named(t types.Type) (path, name string) {
	if t == nil {
		return "", ""
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok && n.Obj().Pkg() != nil {
		return n.Obj().Pkg().Path(), n.Obj().Name()
	}
	return "", ""
}

func is(t types.Type, path, name string) bool {
	p, n := named(t)
	return p == path && n == name
}

func isVisit(t types.Type) bool {
	if t == nil {
		return false
	}
	_, pointer := types.Unalias(t).(*types.Pointer)
	return pointer && is(t, fsmPath, "Visit")
}

// callee is the function or method that a call names: its package, the type of its receiver
// without a package ("" of a function), its name. All are "" if it is not known.
type callee struct{ path, of, name string }

func (u *unit) callee(call *ast.CallExpr) callee {
	f, ok := typeutil.Callee(u.TypesInfo, call).(*types.Func)
	if !ok || f.Pkg() == nil {
		return callee{}
	}
	c := callee{path: f.Pkg().Path(), name: f.Name()}
	if recv := f.Signature().Recv(); recv != nil {
		if _, c.of = named(recv.Type()); c.of == "" {
			return callee{}
		}
	}
	return c
}

// local returns the function of this package that an expression names.
func (u *unit) local(e ast.Expr) *types.Func {
	var id *ast.Ident
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id = e.Sel
	case *ast.IndexExpr:
		return u.local(e.X)
	case *ast.IndexListExpr:
		return u.local(e.X)
	default:
		return nil
	}
	f, ok := u.TypesInfo.Uses[id].(*types.Func)
	if !ok || u.decls[f.Origin()] == nil {
		return nil
	}
	return f.Origin()
}

// text returns the value of a constant string.
func (u *unit) text(e ast.Expr) (string, bool) {
	v := u.TypesInfo.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

func (u *unit) typeOf(e ast.Expr) types.Type { return u.TypesInfo.TypeOf(e) }

// receiver returns the value whose method a call calls.
func receiver(call *ast.CallExpr) ast.Expr {
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		return ast.Unparen(sel.X)
	}
	return nil
}

// enclosing returns the function around a node, a declaration or a literal; nil: none.
func (u *unit) enclosing(n ast.Node) ast.Node {
	for n = u.parents[n]; n != nil; n = u.parents[n] {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			return n
		}
	}
	return nil
}

// signature returns the type of a function, and its body.
func (u *unit) signature(f ast.Node) (*types.Signature, *ast.BlockStmt) {
	switch f := f.(type) {
	case *ast.FuncDecl:
		if o, ok := u.TypesInfo.Defs[f.Name].(*types.Func); ok {
			return o.Signature(), f.Body
		}
	case *ast.FuncLit:
		if s, ok := u.typeOf(f).(*types.Signature); ok {
			return s, f.Body
		}
	}
	return nil, nil
}

// decides reports whether a function returns an outcome and an error, as a step does.
func decides(s *types.Signature) bool {
	return s != nil && s.Results().Len() == 2 && is(s.Results().At(0).Type(), fsmPath, "Outcome") &&
		types.Identical(s.Results().At(1).Type(), types.Universe.Lookup("error").Type())
}

func isNil(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && id.Name == "nil"
}

// quoted lists names.
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strconv.Quote(n)
	}
	return strings.Join(out, ", ")
}

// once returns the value of a local variable, if only its declaration assigns it.
func (u *unit) once(id *ast.Ident) ast.Expr {
	v, ok := u.TypesInfo.ObjectOf(id).(*types.Var)
	if !ok || v.IsField() || v.Parent() == nil || v.Pkg() == nil || v.Parent() == v.Pkg().Scope() {
		return nil
	}
	for _, use := range u.uses[v] {
		switch parent := u.parents[use].(type) {
		case *ast.AssignStmt:
			for _, left := range parent.Lhs {
				if left == use {
					return nil
				}
			}
		case *ast.UnaryExpr:
			if parent.Op.String() == "&" {
				return nil
			}
		}
	}
	return u.declared(v)
}

// declared returns the value with which a variable is declared, also if a call returns it with an
// error.
func (u *unit) declared(v *types.Var) (value ast.Expr) {
	for id, o := range u.TypesInfo.Defs {
		if o != v {
			continue
		}
		switch parent := u.parents[id].(type) {
		case *ast.AssignStmt:
			for i, left := range parent.Lhs {
				if left == id && (len(parent.Rhs) == len(parent.Lhs) || i == 0 && len(parent.Rhs) == 1) {
					return parent.Rhs[i]
				}
			}
		case *ast.ValueSpec:
			for i, name := range parent.Names {
				if name == id && i < len(parent.Values) {
					return parent.Values[i]
				}
			}
		}
	}
	return nil
}
