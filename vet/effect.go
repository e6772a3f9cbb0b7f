package vet

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// effects looks for requests and statements that a second run of a step repeats, in code that
// hands on neither an idempotency key nor a fencing token. Only what is surely an effect counts: a
// POST or PATCH that this code makes and sends, an INSERT or an addition by a separate statement.
func effects(u *unit) {
	if u.hasTransport() {
		return // it may give all requests a key
	}
	seen := map[ast.Node]bool{}
	for _, r := range u.repeats() {
		code := u.within(r.node)
		if u.guarded(code) || u.looksFirst(code) {
			continue
		}
		for _, n := range code {
			calls(n, func(call *ast.CallExpr) {
				what := u.effect(call)
				if what == "" || seen[call] {
					return
				}
				seen[call] = true
				u.found(call.Pos(), "%s may run more than once, and this %s: hand on IdempotencyKey", r.what, what)
			})
		}
	}
}

// effect says what a call repeats; "" if nothing is sure.
func (u *unit) effect(call *ast.CallExpr) string {
	switch c := u.callee(call); {
	case c.path == "net/http":
		if u.sendsAnew(c, call) {
			return "sends a request each time"
		}
	case u.separate(c, call) && sends.MatchString(c.name):
		return u.written(call)
	}
	return ""
}

// written says what a statement repeats that a call sends; "" if nothing is sure.
func (u *unit) written(call *ast.CallExpr) string {
	for _, arg := range call.Args[:min(2, len(call.Args))] {
		if text := u.constant(arg); inserts(text) {
			return "inserts a row each time"
		} else if adds(text) {
			return "adds each time"
		}
	}
	return ""
}

// sends are the methods that send a statement, which may return the row that it inserts.
var sends = regexp.MustCompile(`^(Exec|Query|QueryRow)(Context)?$`)

const pgxPath = "github.com/jackc/pgx/v5"

// direct are the types whose methods run a statement in a separate transaction, or begin one.
var direct = map[string]bool{
	pgxPath + "/pgxpool.Pool": true, pgxPath + "/pgxpool.Conn": true, pgxPath + ".Conn": true, "database/sql.DB": true, "database/sql.Conn": true,
}

// separate reports whether a statement surely runs in another transaction than the outcome's: by a
// pool, a connection, or a transaction that this code has begun there.
func (u *unit) separate(c callee, call *ast.CallExpr) bool {
	if direct[c.path+"."+c.of] {
		return true
	}
	id, ok := receiver(call).(*ast.Ident)
	if !ok || c.of != "Tx" || c.path != pgxPath && c.path != "database/sql" {
		return false
	}
	if begin, ok := u.once(id).(*ast.CallExpr); ok {
		by := u.callee(begin)
		return direct[by.path+"."+by.of] && (by.name == "Begin" || by.name == "BeginTx")
	}
	return u.begunAround(u.TypesInfo.Uses[id])
}

// begunAround reports whether a variable is the transaction that pgx.BeginFunc gives a function.
func (u *unit) begunAround(tx types.Object) bool {
	for id, o := range u.TypesInfo.Defs {
		if o == nil || o != tx {
			continue
		}
		f, literal := u.enclosing(id).(*ast.FuncLit)
		if !literal {
			return false
		}
		begin, ok := u.parents[f].(*ast.CallExpr)
		if !ok || len(begin.Args) < 2 {
			return false
		}
		c := u.callee(begin)
		path, name := named(u.typeOf(begin.Args[1]))
		return c.path == pgxPath && (c.name == "BeginFunc" || c.name == "BeginTxFunc") && direct[path+"."+name]
	}
	return false
}

var (
	words    = regexp.MustCompile(`\s+`)
	addition = regexp.MustCompile(`^update \S+ set (\w+) ?= ?(\w+) ?[-+] ?\S+ where \w+ ?= ?\S+$`)
)

// inserts reports whether a statement inserts one row more each time that it runs, or fails.
func inserts(text string) bool {
	text = strings.TrimSpace(words.ReplaceAllString(text, " "))
	return strings.HasPrefix(text, "insert into ") && strings.Contains(text, "values") &&
		!strings.Contains(text, "on conflict") && !strings.Contains(text, "select") && !strings.Contains(text, ";")
}

// adds reports whether a statement changes a column by its own value, of whatever row it finds.
func adds(text string) bool {
	m := addition.FindStringSubmatch(strings.TrimSpace(words.ReplaceAllString(text, " ")))
	return m != nil && m[1] == m[2]
}

func (u *unit) sendsAnew(c callee, call *ast.CallExpr) bool {
	switch {
	case (c.name == "Post" || c.name == "PostForm") && (c.of == "" || c.of == "Client"):
		return true
	case c.of == "" && c.name == "NewRequest" && len(call.Args) == 3:
		return u.posts(call.Args[0]) && u.sent(call)
	case c.of == "" && c.name == "NewRequestWithContext" && len(call.Args) == 4:
		return u.posts(call.Args[1]) && u.sent(call)
	}
	return false
}

// posts reports whether a method is none of those that HTTP says may be repeated, as PUT is.
func (u *unit) posts(method ast.Expr) bool {
	name := u.constant(method)
	return name == "post" || name == "patch"
}

// sent reports whether a request goes to a client's Do, and nowhere else, with headers that say
// nothing of what it is.
func (u *unit) sent(made *ast.CallExpr) bool {
	assign, ok := u.parents[made].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 2 {
		return false
	}
	id, ok := assign.Lhs[0].(*ast.Ident)
	if !ok {
		return false
	}
	request := u.TypesInfo.ObjectOf(id)
	sent := false
	for _, use := range u.uses[request] {
		switch parent := u.parents[use].(type) {
		case *ast.CallExpr:
			if c := u.callee(parent); c.path != "net/http" || c.of != "Client" || c.name != "Do" {
				return false
			}
			sent = true
		case *ast.SelectorExpr:
			if !u.plainUse(parent) {
				return false
			}
		default:
			return false
		}
	}
	return sent
}

// plainHeaders say nothing by which a repetition could be recognised.
var plainHeaders = map[string]bool{"content-type": true, "accept": true, "authorization": true, "user-agent": true, "accept-encoding": true}

// plainUse reports whether a field or method of a request that is used tells the other side nothing
// of which request it is.
func (u *unit) plainUse(of *ast.SelectorExpr) bool {
	switch of.Sel.Name {
	case "SetBasicAuth", "ContentLength", "UserAgent", "Close":
		return true
	case "Header":
		set, ok := u.parents[of].(*ast.SelectorExpr)
		if !ok || set.Sel.Name != "Set" && set.Sel.Name != "Add" {
			return false
		}
		call, ok := u.parents[set].(*ast.CallExpr)
		return ok && len(call.Args) == 2 && plainHeaders[u.constant(call.Args[0])]
	}
	return false
}

// guarded reports whether code has something by which a repetition may be recognised.
func (u *unit) guarded(code []ast.Node) (yes bool) {
	for _, n := range code {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				yes = yes || idempotent(id.Name) || id.Name == "FencingToken" || id.Name == "PgError"
			}
			return !yes
		})
	}
	return yes
}

// looksFirst reports whether code reads the target of its write: it may find the effect of an
// earlier run.
func (u *unit) looksFirst(code []ast.Node) (yes bool) {
	for _, n := range code {
		calls(n, func(call *ast.CallExpr) {
			c := u.callee(call)
			switch {
			case u.separate(c, call):
				yes = yes || strings.HasPrefix(c.name, "Query") && u.written(call) == ""
			case c.path == "net/http" && (c.of == "" || c.of == "Client"):
				yes = yes || c.name == "Get" || c.name == "Head" || strings.HasPrefix(c.name, "NewRequest") && !u.writes(call)
			}
		})
	}
	return yes
}

// writes reports whether a request that is made has the method POST or PATCH.
func (u *unit) writes(made *ast.CallExpr) bool {
	return slices.ContainsFunc(made.Args[:min(2, len(made.Args))], u.posts)
}

// hasTransport reports whether the package gives a client a transport, or is one.
func (u *unit) hasTransport() (yes bool) {
	for f := range u.decls {
		yes = yes || f.Name() == "RoundTrip"
	}
	for o := range u.uses {
		v, ok := o.(*types.Var)
		yes = yes || ok && v.IsField() && v.Name() == "Transport" && v.Pkg() != nil && v.Pkg().Path() == "net/http"
	}
	return yes
}
