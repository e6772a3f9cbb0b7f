package entity

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

type Cart struct{ Cents int64 }

type Page[T any] struct{ All []T }

type hiddenCart struct{ Cents int64 }

// A description names a type for other packages, or says why they cannot name it.
func TestTypesAsOthersNameThem(t *testing.T) {
	t.Parallel()
	const own = `"github.com/gendurable/gendurable/entity".`
	for want, of := range map[string]reflect.Type{
		"int64":                          reflect.TypeFor[int64](),
		"any":                            reflect.TypeFor[any](),
		"[]uint8":                        reflect.TypeFor[[]byte](),
		own + "Cart":                     reflect.TypeFor[Cart](),
		"*" + own + "Cart":               reflect.TypeFor[*Cart](),
		"map[string][3]*" + own + "Cart": reflect.TypeFor[map[string][3]*Cart](),
		`"encoding/json".RawMessage`:     reflect.TypeFor[json.RawMessage](),
		`map["time".Month]"github.com/gendurable/gendurable/fsm".None`: reflect.TypeFor[map[time.Month]fsm.None](),
	} {
		found := typeOf(of)
		require.Empty(t, found.Fault, want)
		require.Equal(t, want, found.Name)
	}
	require.Equal(t, []string{"time", "github.com/gendurable/gendurable/fsm"}, typeOf(reflect.TypeFor[map[time.Month]fsm.None]()).Imports)
	for want, of := range map[string]reflect.Type{
		"is not exported":              reflect.TypeFor[[]hiddenCart](),
		"is an instance of a generic":  reflect.TypeFor[map[string]Page[Cart]](),
		"struct { A int } has no name": reflect.TypeFor[*struct{ A int }](),
		"struct {} has no name":        reflect.TypeFor[map[struct{}]int](),
		"has no name":                  reflect.TypeFor[interface{ M() }](),
	} {
		found := typeOf(of)
		require.Contains(t, found.Fault, want)
		require.Empty(t, found.Name)
	}
}

// Base is embedded in a state.
type Base struct {
	Owner string
	Name  string
}

// Lines is an embedded struct with its own name in JSON.
type Lines struct{ First string }

// loud writes its own JSON.
type loud string

func (l loud) MarshalText() ([]byte, error) { return []byte(l + "!"), nil }

// Loud is exported, and writes its own JSON.
type Loud = loud

// covert is embedded with a name in the JSON, so no other package can name its fields.
type covert struct{ City string }

// Left and Right are embedded, and have the same field.
type (
	Left  struct{ Same int }
	Right struct{ Same int }
)

// State has fields with predicates, and others.
type State struct {
	Base
	Left
	Right
	*Cart   // may be nil
	Lines   `json:"lines"`
	covert  `json:"covert"`
	Name    string // hides that of Base
	Cents   int64  `json:"amount,omitempty"`
	Ratio   float32
	Gift    bool `json:",omitempty"`
	Due     time.Time
	Status  fsm.Status
	Deep    struct{ Most struct{ A int } }
	Flat    struct{ A uint64 }
	Text    int `json:",string"`
	Any     any
	Loud    Loud
	Number  json.Number
	Ignored int `json:"-"`
	Dash    int `json:"-,"`
	Raw     []byte
}

// own has a MarshalJSON, which says what is where.
type own struct{ A int }

func (o own) MarshalJSON() ([]byte, error) { return json.Marshal(o.A) }

// The fields of a state that have predicates are those whose JSON is where their names say.
func TestFieldsOfAState(t *testing.T) {
	t.Parallel()
	fields, without := fieldsOf(reflect.TypeFor[State]())
	var found []string
	for _, f := range fields {
		found = append(found, f.Go+" "+f.Of+" "+f.Name+" "+strings.Join(f.Path, "/"))
	}
	require.Equal(t, []string{
		"Owner Text string Owner",
		"Lines.First Text string lines/First",
		"Name Text string Name",
		"Cents Ordered int64 amount",
		"Ratio Ordered float32 Ratio",
		"Gift Bool bool Gift",
		`Due Ordered "time".Time Due`,
		`Status Text "github.com/gendurable/gendurable/fsm".Status Status`,
		"Flat.A Ordered uint64 Flat/A",
		"Dash Ordered int -",
	}, found)
	require.Equal(t, []string{"Name", "Same", "Same", "Cart", "covert.City", "Deep.Most", "Text", "Any", "Loud", "Number", "Raw"}, without)
	for _, none := range []reflect.Type{reflect.TypeFor[own](), reflect.TypeFor[int64](), reflect.TypeFor[fsm.None](), reflect.TypeFor[time.Time](), reflect.TypeFor[map[string]int](), reflect.TypeFor[*State]()} {
		fields, without := fieldsOf(none)
		require.Empty(t, fields, none)
		require.Empty(t, without, none)
	}
}

// A declared machine says what the generated client needs to read it; a name says no more.
func TestDrivenBy(t *testing.T) {
	t.Parallel()
	said := func(d Driven) Annotation { return d.Annotations()[0].(Annotation) }
	checkout := fsm.Declare[Cart, int64]("checkout", fsm.Version(3), fsm.StateSince(2), fsm.ResultSince(1))
	typed := said(DrivenBy(checkout).Required())
	require.Equal(t, Annotation{Machine: "checkout", OnDelete: Refuse, Required: true, Version: 3, StateSince: 2, ResultSince: 1,
		State:  &Type{Name: `"github.com/gendurable/gendurable/entity".Cart`, Imports: []string{"github.com/gendurable/gendurable/entity"}},
		Result: &Type{Name: "int64"},
		Fields: []StateField{{Type: Type{Name: "int64"}, Go: "Cents", Path: []string{"Cents"}, Of: "Ordered"}}}, typed)
	require.Equal(t, Annotation{Machine: "checkout", OnDelete: Refuse}, said(DrivenByName("checkout")))
	require.Empty(t, said(DrivenBy[Cart, int64](nil)).Machine, "the generator refuses it")
	require.Contains(t, said(DrivenBy(fsm.Declare[hiddenCart, int64]("checkout"))).State.Fault, "not exported")
}
