package vet

import (
	"go/ast"
	"go/types"
	"strings"
)

// repeated is code that runs again when its outcome was not committed: a step, a handler, a job, a
// function of a graph.
type repeated struct {
	what string // in messages
	node ast.Node
}

// repeats returns all such code of the package that is seen: each function once.
func (u *unit) repeats() (all []repeated) {
	seen := map[ast.Node]bool{}
	add := func(what string, e ast.Expr) {
		if n := u.function(e); n != nil && !seen[n] {
			seen[n] = true
			all = append(all, repeated{what, n})
		}
	}
	for _, m := range u.machines {
		for _, s := range m.steps {
			add("step \""+s.name+"\"", s.code)
		}
		for _, h := range m.handlers {
			add("the handler", h)
		}
	}
	u.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		switch c := u.callee(call); {
		case c == callee{fsmPath, "Machine", "Job"} && len(call.Args) == 1:
			add("the job", call.Args[0])
		case c.path == dagPath && c.of == "":
			u.nodes(c.name, call, add)
		}
	})
	return all
}

// nodes adds the functions of a graph's node.
func (u *unit) nodes(kind string, call *ast.CallExpr, add func(string, ast.Expr)) {
	at, known := map[string]int{"Do": 3, "Do2": 4, "Do3": 5, "Each": 3, "Some": 3, "Decide": 3, "Prepare": 2}[kind]
	if !known || at >= len(call.Args) {
		return
	}
	what := "the node"
	if name, constant := u.text(call.Args[1]); constant {
		what = "node \"" + name + "\""
	}
	add(what, call.Args[at])
}

// function returns the function that an expression is: a literal, the body of one of this package,
// or the body of one of this package that makes it.
func (u *unit) function(e ast.Expr) ast.Node {
	if lit, ok := ast.Unparen(e).(*ast.FuncLit); ok {
		return lit
	}
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		e = call.Fun
	}
	if f := u.local(e); f != nil {
		return u.decls[f].Body
	}
	return nil
}

// within returns a piece of code and all functions of this package that it names.
func (u *unit) within(n ast.Node) []ast.Node {
	all := []ast.Node{n}
	seen := map[*types.Func]bool{}
	for i := 0; i < len(all); i++ {
		ast.Inspect(all[i], func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if f, ok := u.TypesInfo.Uses[id].(*types.Func); ok && u.decls[f.Origin()] != nil && !seen[f.Origin()] {
				seen[f.Origin()] = true
				all = append(all, u.decls[f.Origin()].Body)
			}
			return true
		})
	}
	return all
}

// idempotent reports whether a name says that something is for recognising repetitions.
func idempotent(name string) bool {
	return strings.Contains(strings.ToLower(name), "idempot")
}

// constant returns a constant text in lower case, "" if it is none.
func (u *unit) constant(e ast.Expr) string {
	text, _ := u.text(e)
	return strings.ToLower(text)
}

// calls calls look for each call in a piece of code.
func calls(n ast.Node, look func(*ast.CallExpr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			look(call)
		}
		return true
	})
}
