package vet

import (
	"go/ast"
	"go/types"
	"iter"
	"reflect"

	"github.com/gendurable/gendurable/internal/shape"
)

// stored looks for types that do not come back from JSON, as fsm.Check does at run time. A package
// that has its own codec knows what that stores.
func stored(u *unit) {
	if u.hasCodec() {
		return
	}
	u.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		for _, kept := range u.kept(call) {
			if _, open := types.Unalias(kept.t).(*types.TypeParam); open {
				continue
			}
			form := shape.FormOf(checked{kept.t}, true)
			switch {
			case form.Lost != nil:
				u.found(call.Pos(), "the %s: %v", kept.what, form.Lost)
			case form.Unread != nil:
				u.found(call.Pos(), "the %s: %v", kept.what, form.Unread)
			}
		}
	})
}

// kept is a type whose values are stored.
type kept struct {
	what string
	t    types.Type
}

// kept returns the types that a declaration stores.
func (u *unit) kept(call *ast.CallExpr) (all []kept) {
	arg := func(what string, i int) {
		if args := u.typeArgs(call); i < args.Len() {
			all = append(all, kept{what, args.At(i)})
		}
	}
	switch c := u.callee(call); c {
	case callee{fsmPath, "", "Declare"}:
		arg("state", 0)
		arg("result", 1)
	case callee{fsmPath, "", "DeclareSignal"}:
		arg("payload", 0)
	case callee{dagPath, "", "Do"}, callee{dagPath, "", "Do2"}, callee{dagPath, "", "Do3"}, callee{dagPath, "", "Decide"}:
		arg("result of the node", u.typeArgs(call).Len()-1)
	case callee{dagPath, "", "Each"}, callee{dagPath, "", "Some"}, callee{dagPath, "", "Prepare"}:
		arg("argument of the piece", 2)
		arg("result of the piece", 3)
	}
	return all
}

func (u *unit) typeArgs(call *ast.CallExpr) *types.TypeList {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	id, ok := fun.(*ast.Ident)
	if sel, selects := fun.(*ast.SelectorExpr); selects {
		id, ok = sel.Sel, true
	}
	if !ok {
		return nil
	}
	return u.TypesInfo.Instances[id].TypeArgs
}

func (u *unit) hasCodec() bool {
	scope := u.Pkg.Scope()
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok && !t.IsAlias() {
			set := types.NewMethodSet(types.NewPointer(t.Type()))
			if set.Lookup(u.Pkg, "Encode") != nil && set.Lookup(u.Pkg, "Decode") != nil {
				return true
			}
		}
	}
	return false
}

// checked is a type as the type checker knows it.
type checked struct{ t types.Type }

func (c checked) String() string {
	return types.TypeString(c.t, func(p *types.Package) string { return p.Name() })
}

func (c checked) ID() any { return types.TypeString(c.t, nil) }

func (c checked) Path() string {
	switch t := types.Unalias(c.t).(type) {
	case *types.Named:
		if t.Obj().Pkg() != nil {
			return t.Obj().Pkg().Path() + "." + t.Obj().Name()
		}
		return "." + t.Obj().Name()
	case *types.Basic:
		return "." + t.Name()
	}
	return ""
}

var kinds = map[types.BasicKind]reflect.Kind{
	types.Bool: reflect.Bool, types.String: reflect.String, types.UnsafePointer: reflect.UnsafePointer,
	types.Int: reflect.Int, types.Int8: reflect.Int8, types.Int16: reflect.Int16, types.Int32: reflect.Int32, types.Int64: reflect.Int64,
	types.Uint: reflect.Uint, types.Uint8: reflect.Uint8, types.Uint16: reflect.Uint16, types.Uint32: reflect.Uint32,
	types.Uint64: reflect.Uint64, types.Uintptr: reflect.Uintptr, types.Float32: reflect.Float32, types.Float64: reflect.Float64,
	types.Complex64: reflect.Complex64, types.Complex128: reflect.Complex128,
}

// Kind returns reflect.Invalid for a type parameter, of which no rule says anything.
func (c checked) Kind() reflect.Kind {
	if _, open := types.Unalias(c.t).(*types.TypeParam); open {
		return reflect.Invalid
	}
	switch t := c.t.Underlying().(type) {
	case *types.Basic:
		return kinds[t.Kind()]
	case *types.Pointer:
		return reflect.Pointer
	case *types.Slice:
		return reflect.Slice
	case *types.Array:
		return reflect.Array
	case *types.Map:
		return reflect.Map
	case *types.Struct:
		return reflect.Struct
	case *types.Interface:
		return reflect.Interface
	case *types.Chan:
		return reflect.Chan
	case *types.Signature:
		return reflect.Func
	}
	return reflect.Invalid
}

func (c checked) Elem() shape.Type {
	return checked{c.t.Underlying().(interface{ Elem() types.Type }).Elem()} //nolint:forcetypeassert // as of reflect.Type
}

func (c checked) Key() shape.Type {
	return checked{c.t.Underlying().(*types.Map).Key()} //nolint:forcetypeassert // as of reflect.Type
}

func (c checked) Len() int {
	return int(c.t.Underlying().(*types.Array).Len()) //nolint:forcetypeassert // as of reflect.Type
}

func (c checked) NumMethod() int {
	return c.t.Underlying().(*types.Interface).NumMethods() //nolint:forcetypeassert // as of reflect.Type
}

func (c checked) Fields() iter.Seq[shape.Field] {
	return func(yield func(shape.Field) bool) {
		of := c.t.Underlying().(*types.Struct) //nolint:forcetypeassert // as of reflect.Type
		for i := range of.NumFields() {
			f := of.Field(i)
			if !yield(shape.Field{Name: f.Name(), Type: checked{f.Type()}, Tag: reflect.StructTag(of.Tag(i)),
				Embedded: f.Embedded(), Exported: f.Exported()}) {
				return
			}
		}
	}
}

func (c checked) Has(m shape.Method) bool { return types.Implements(c.t, methods[m]) }

func (c checked) PointerHas(m shape.Method) bool {
	return types.Implements(types.NewPointer(c.t), methods[m])
}

// methods are the interfaces of encoding/json.
var methods = func() (all [4]*types.Interface) {
	failure := types.Universe.Lookup("error").Type()
	text := types.NewSlice(types.Typ[types.Byte])
	list := func(of ...types.Type) *types.Tuple {
		vars := make([]*types.Var, len(of))
		for i, t := range of {
			vars[i] = types.NewParam(0, nil, "", t)
		}
		return types.NewTuple(vars...)
	}
	for m := range all {
		s := types.NewSignatureType(nil, nil, nil, nil, list(text, failure), false)
		if m := shape.Method(m); m == shape.UnmarshalJSON || m == shape.UnmarshalText {
			s = types.NewSignatureType(nil, nil, nil, list(text), list(failure), false)
		}
		all[m] = types.NewInterfaceType([]*types.Func{types.NewFunc(0, nil, shape.Method(m).String(), s)}, nil).Complete()
	}
	return all
}()
