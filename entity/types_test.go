package entity

import (
	"encoding/json"
	"reflect"
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

// A declared machine says what the generated client needs to read it; a name says no more.
func TestDrivenBy(t *testing.T) {
	t.Parallel()
	said := func(d Driven) Annotation { return d.Annotations()[0].(Annotation) }
	checkout := fsm.Declare[Cart, int64]("checkout", fsm.Version(3), fsm.StateSince(2), fsm.ResultSince(1))
	typed := said(DrivenBy(checkout).Required())
	require.Equal(t, Annotation{Machine: "checkout", OnDelete: Refuse, Required: true, Version: 3, StateSince: 2, ResultSince: 1,
		State:  &Type{Name: `"github.com/gendurable/gendurable/entity".Cart`, Imports: []string{"github.com/gendurable/gendurable/entity"}},
		Result: &Type{Name: "int64"}}, typed)
	require.Equal(t, Annotation{Machine: "checkout", OnDelete: Refuse}, said(DrivenByName("checkout")))
	require.Empty(t, said(DrivenBy[Cart, int64](nil)).Machine, "the generator refuses it")
	require.Contains(t, said(DrivenBy(fsm.Declare[hiddenCart, int64]("checkout"))).State.Fault, "not exported")
}
