package vet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// keys looks for keys that are made anew in each run of a step, so that none is recognised: keys
// of effects, of instances that the step inserts at once, of signals that it sends. The key of a
// child, or of whatever else an outcome brings, is committed with that outcome, and so exists
// once.
func keys(u *unit) {
	seen := map[ast.Node]bool{}
	for _, r := range u.repeats() {
		calls(r.node, func(call *ast.CallExpr) {
			for _, arg := range u.besideKey(call) {
				if source := u.unstable(arg); u.drawn(source) && !seen[arg] {
					seen[arg] = true
					u.found(arg.Pos(), "this is made of %s, so it is another one when %s runs again under the same key: make it in a step before, and keep it in the state",
						types.ExprString(source.Fun), r.what)
				}
			}
			for _, k := range u.keysOf(call) {
				if source := u.unstable(k.value); source != nil && !seen[k.value] {
					seen[k.value] = true
					u.found(k.value.Pos(), "%s is made of %s, so it is another one when %s runs again: take IdempotencyKey, or the state",
						k.what, types.ExprString(source.Fun), r.what)
				}
			}
		})
	}
}

// key is a value by which a repetition is to be recognised.
type key struct {
	what  string
	value ast.Expr
}

func (u *unit) keysOf(call *ast.CallExpr) (all []key) {
	c := u.callee(call)
	switch {
	case c.path == "net/http" && c.of == "Header" && (c.name == "Set" || c.name == "Add") && len(call.Args) == 2:
		if strings.Contains(u.constant(call.Args[0]), "idempot") {
			all = append(all, key{"the idempotency key", call.Args[1]})
		}
		return all
	case c.name != "" && u.inserts(receiver(call)):
		for _, arg := range call.Args {
			all = append(all, u.durable(arg)...)
		}
		return all
	}
	return u.idempotencyKeys(c, call)
}

// besideKey returns the other texts in the arguments of a call that gets an idempotency key of the
// visit: two calls with one key have to say the same. It leaves out functions that only make texts,
// and functions that take any values, as loggers do.
func (u *unit) besideKey(call *ast.CallExpr) (others []ast.Expr) {
	c := u.callee(call)
	switch c.path {
	case "fmt", "strings", "strconv", "errors", "log", "log/slog", fsmPath:
		return nil
	}
	s, function := u.typeOf(call.Fun).(*types.Signature)
	if !function || idempotent(c.name) || takesAny(s) {
		return nil
	}
	keyed := false
	for _, arg := range call.Args {
		key, ok := ast.Unparen(arg).(*ast.CallExpr)
		if ok && u.isKey(key) {
			keyed = true
			continue
		}
		if t, basic := u.typeOf(arg).Underlying().(*types.Basic); basic && t.Info()&types.IsString != 0 {
			others = append(others, arg)
		}
	}
	if !keyed {
		return nil
	}
	return others
}

// takesAny reports whether a function takes any number of any values.
func takesAny(s *types.Signature) bool {
	if !s.Variadic() {
		return false
	}
	list, ok := s.Params().At(s.Params().Len() - 1).Type().(*types.Slice)
	return ok && types.IsInterface(list.Elem())
}

// drawn reports whether a source is a random number. One of a few may only choose a way to the same
// thing, such as a replica.
func (u *unit) drawn(source *ast.CallExpr) bool {
	if source == nil || !random(u.callee(source)) {
		return false
	}
	for _, bound := range source.Args {
		value := u.TypesInfo.Types[bound].Value
		if value == nil {
			return false
		}
		if n, exact := constant.Int64Val(constant.ToInt(value)); !exact || n < 1000 {
			return false
		}
	}
	return true
}

// isKey reports whether a call makes an idempotency key of the visit of nothing but what stays.
func (u *unit) isKey(call *ast.CallExpr) bool {
	c := u.callee(call)
	return c.path == fsmPath && c.name == "IdempotencyKey" && (c.of == "Visit" || c.of == "Info")
}

// inserts reports whether the verbs of a value are separate transactions.
func (u *unit) inserts(e ast.Expr) bool {
	return e != nil && (is(u.typeOf(e), module+"engine", "Engine") || is(u.typeOf(e), module+"cluster", "Cluster"))
}

// durable returns the keys of specs and messages.
func (u *unit) durable(e ast.Expr) (all []key) {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		if e = u.once(id); e == nil {
			return nil
		}
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	for ok {
		switch u.callee(call) {
		case callee{fsmPath, "Spec", "Key"}:
			all = append(all, key{"the key of the instance", call.Args[0]})
		case callee{fsmPath, "Message", "DedupKey"}:
			all = append(all, key{"the key of the signal", call.Args[0]})
		}
		call, ok = receiver(call).(*ast.CallExpr)
	}
	return all
}

// idempotencyKeys returns the arguments that a function takes as such, by the names of its
// parameters, or by its own.
func (u *unit) idempotencyKeys(c callee, call *ast.CallExpr) (all []key) {
	s := signatureOf(u.typeOf(call.Fun))
	if s == nil {
		return nil
	}
	for i, arg := range call.Args {
		at := min(i, s.Params().Len()-1)
		if at >= 0 && (idempotent(s.Params().At(at).Name()) || idempotent(c.name)) {
			all = append(all, key{"the idempotency key", arg})
		}
	}
	return all
}

// unstable returns the call whose result differs from run to run, of which a value is made; nil if
// nothing is sure.
func (u *unit) unstable(e ast.Expr) *ast.CallExpr {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if value := u.once(e); value != nil {
			return u.unstable(value)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			if source := u.unstable(e.X); source != nil {
				return source
			}
			return u.unstable(e.Y)
		}
	case *ast.SliceExpr:
		return u.unstable(e.X)
	case *ast.CompositeLit:
		if _, list := u.typeOf(e).Underlying().(*types.Slice); list {
			for _, one := range e.Elts {
				if source := u.unstable(one); source != nil {
					return source
				}
			}
		}
	case *ast.CallExpr:
		return u.unstableCall(e)
	}
	return nil
}

func (u *unit) unstableCall(call *ast.CallExpr) *ast.CallExpr {
	if u.TypesInfo.Types[call.Fun].IsType() && len(call.Args) == 1 {
		return u.unstable(call.Args[0])
	}
	c := u.callee(call)
	if random(c) || c.of == "" && fresh[c.path][c.name] {
		return call
	}
	switch {
	case c.path == "time":
		return u.unstableTime(c, call)
	case c.of == "" && (c.path == "fmt" || c.path == "strconv" || c.path == "strings" || c.name == "Must" && strings.HasSuffix(c.path, "uuid")):
		for _, arg := range call.Args {
			if source := u.unstable(arg); source != nil {
				return source
			}
		}
	case c.name == "String" && receiver(call) != nil:
		return u.unstable(receiver(call))
	}
	return nil
}

// fresh are functions whose results differ from call to call.
var fresh = map[string]map[string]bool{
	"github.com/google/uuid":     {"New": true, "NewString": true, "NewRandom": true, "NewUUID": true, "NewV6": true, "NewV7": true},
	"github.com/gofrs/uuid/v5":   {"NewV1": true, "NewV4": true, "NewV6": true, "NewV7": true},
	"github.com/gofrs/uuid":      {"NewV1": true, "NewV4": true, "NewV6": true, "NewV7": true},
	"github.com/oklog/ulid/v2":   {"Make": true},
	"github.com/rs/xid":          {"New": true},
	"github.com/segmentio/ksuid": {"New": true},
	"crypto/rand":                {"Text": true},
	"time":                       {"Now": true},
}

// random reports whether a function draws random numbers.
func random(c callee) bool {
	return (c.path == "math/rand" || c.path == "math/rand/v2") && c.of == "" && !strings.HasPrefix(c.name, "New")
}

// finest are parts of layouts that tell two runs of a step apart: a minute, a second.
var finest = []string{"04", "05"}

// unstableTime returns the source of a time, unless a step runs again within the same one, as the
// same day.
func (u *unit) unstableTime(c callee, call *ast.CallExpr) *ast.CallExpr {
	if c.of != "Time" || receiver(call) == nil {
		return nil
	}
	source := u.unstable(receiver(call))
	switch c.name {
	case "UTC", "Local", "In", "Add", "AddDate", "Unix", "UnixMilli", "UnixMicro", "UnixNano", "Nanosecond", "String":
		return source
	case "Format":
		for _, part := range finest {
			if layout, known := u.text(call.Args[0]); known && strings.Contains(layout, part) {
				return source
			}
		}
	}
	return nil
}
