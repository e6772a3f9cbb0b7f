package docs_test

import (
	"go/types"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A struct that the engine returns has a name in JSON for each field: the field's name in snake
// case, for a duration with its unit. Hosts serve such structs as they are, and the command line
// prints some of them.
func TestWhatIsReturnedHasNamesInJSON(t *testing.T) {
	t.Parallel()
	packages := compiled(t)
	found := returned{met: map[types.Object]bool{}}
	for _, path := range []string{"cluster", "engine", "fsm", "migrations"} {
		p, err := packages.Import(module + path)
		require.NoError(t, err)
		for _, name := range p.Scope().Names() {
			if object := p.Scope().Lookup(name); object.Exported() {
				found.object(object)
			}
		}
	}
	require.NotEmpty(t, found.structs)
	for _, s := range found.structs {
		for i := range s.fields.NumFields() {
			field := s.fields.Field(i)
			name, _, _ := strings.Cut(reflect.StructTag(s.fields.Tag(i)).Get("json"), ",")
			switch {
			case !field.Exported(), field.Embedded() && name == "":
			case isError(field.Type()):
				assert.Equal(t, "-", name, "%s.%s would be {}", s.name, field.Name())
			default:
				assert.Equal(t, nameInJSON(field), name, "%s.%s", s.name, field.Name())
			}
		}
	}
}

var (
	beforeWord    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	beforeInitial = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
)

func nameInJSON(of *types.Var) string {
	name := strings.ReplaceAll(of.Name(), "IDs", "Ids")
	name = strings.ToLower(beforeInitial.ReplaceAllString(beforeWord.ReplaceAllString(name, "${1}_$2"), "${1}_$2"))
	if of.Type().String() == "time.Duration" {
		name += "_ns"
	}
	return name
}

const module = "github.com/gendurable/gendurable/"

// notData are structs that are returned but hold no data: functions, pools and clients.
var notData = map[string]bool{
	module + "engine.Config": true, // WithDefaults returns it
	module + "ent.Client":    true,
}

// returned collects the structs of this module that its exported functions and methods return, and
// those within them.
type returned struct {
	met     map[types.Object]bool
	structs []namedStruct
}

type namedStruct struct {
	name   string
	fields *types.Struct
}

// object looks at an exported function, or at the methods of an exported type.
func (r *returned) object(of types.Object) {
	switch of := of.(type) {
	case *types.Func:
		r.results(of)
	case *types.TypeName:
		for method := range types.NewMethodSet(types.NewPointer(of.Type())).Methods() {
			if f, ok := method.Obj().(*types.Func); ok && f.Exported() {
				r.results(f)
			}
		}
	}
}

func (r *returned) results(of *types.Func) {
	signature, ok := of.Type().(*types.Signature)
	if !ok {
		return
	}
	for result := range signature.Results().Variables() {
		r.value(result.Type())
	}
}

func (r *returned) value(of types.Type) {
	switch of := types.Unalias(of).(type) {
	case *types.Pointer:
		r.value(of.Elem())
	case *types.Slice:
		r.value(of.Elem())
	case *types.Map:
		r.value(of.Elem())
	case *types.Struct:
		for field := range of.Fields() {
			r.value(field.Type())
		}
	case *types.Named:
		for argument := range of.TypeArgs().Types() {
			r.value(argument) // of an iterator or a page, too
		}
		name := of.Obj()
		if r.met[name] || name.Pkg() == nil || !strings.HasPrefix(name.Pkg().Path(), module) {
			return
		}
		r.met[name] = true
		full := name.Pkg().Path() + "." + name.Name()
		if fields, ok := of.Underlying().(*types.Struct); ok && !isError(types.NewPointer(of)) && !notData[full] {
			r.structs = append(r.structs, namedStruct{full, fields})
			for field := range fields.Fields() {
				if field.Exported() {
					r.value(field.Type())
				}
			}
		}
	}
}

func isError(t types.Type) bool {
	failure, ok := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return ok && types.Implements(t, failure)
}
