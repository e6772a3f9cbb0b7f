package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// code is a state with a method, for functions that take an interface.
type code string

func (c code) Code() string { return string(c) }

type coded interface{ Code() string }

func codeKey(c coded) fsm.Key { return fsm.Key(c.Code()) }

var coupons = fsm.Declare[code, fsm.None]("coupon", fsm.KeyBy(codeKey), fsm.KeyScope(fsm.ScopeAll))

func requireKeyError(t *testing.T, err error, machine string) {
	t.Helper()
	wrong, ok := errors.AsType[*fsm.KeyError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, machine, wrong.Machine)
	require.Equal(t, 1, wrong.Version)
}

func TestDeclaredKeys(t *testing.T) {
	t.Parallel()
	spec := coupons.New("a")
	require.Equal(t, fsm.Key("a"), spec.Options().Key)
	require.Equal(t, fsm.ScopeAll, spec.Options().Scope)
	got, err := hidden.Spec(spec, nil)
	require.NoError(t, err)
	require.Equal(t, "a", got.Key)
	require.Equal(t, step.ScopeAll, got.Scope)

	// All other methods of the spec work as ever.
	for name, s := range map[string]fsm.Spec{
		"the same key": spec.Key("a"),
		"policy":       spec.OnConflict(fsm.ConflictReplace),
		"throttle":     spec.Throttle("w", time.Second),
		"scope":        spec.Scope(fsm.ScopeLive),
		"debounce":     spec.Scope(fsm.ScopeNone).Debounce("w", time.Second, 0),
	} {
		got, err := hidden.Spec(s, nil)
		require.NoError(t, err, name)
		require.Equal(t, "a", got.Key, name)
		require.Equal(t, step.Scope(s.Options().Scope), got.Scope, name)
	}

	// The key is the one of Spec.KeyFromState, in every version and with every codec.
	plain := cartMachine.New(cart{ID: 42}).KeyFromState().Options().Key
	for _, version := range []int{1, 2} {
		m := fsm.Declare[cart, string]("cart", fsm.Version(version), fsm.KeyFromState())
		require.Equal(t, plain, m.New(cart{ID: 42}).Options().Key)
		got, err := hidden.Spec(m.New(cart{ID: 42}).KeyFromState(), &step.Env{Codec: foreign{raw: `"cipher"`}})
		require.NoError(t, err)
		require.Equal(t, string(plain), got.Key)
		require.Equal(t, `"cipher"`, string(got.State))
	}

	none := fsm.Declare[coded, fsm.None]("m", fsm.KeyBy(func(c coded) fsm.Key {
		if c == nil {
			return "nil"
		}
		return "other"
	})).New(nil)
	require.Equal(t, fsm.Key("nil"), none.Options().Key)

	// A scope without declared keys is the one of keys that specs give.
	marks := fsm.Declare[cart, string]("mark", fsm.KeyScope(fsm.ScopeNone))
	require.Equal(t, fsm.ScopeNone, marks.New(cart{}).Key("k").Options().Scope)
	require.Empty(t, marks.New(cart{}).Options().Key)
}

// The key is made once, and specs of machines without declared keys have nothing of it.
func TestADeclaredKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	m := fsm.Declare[int, fsm.None]("once", fsm.KeyBy(func(int) fsm.Key { calls++; return "k" }))
	spec := m.New(1).Label("a", "b").Priority(1)
	for range 3 {
		_, err := hidden.Spec(spec, nil)
		require.NoError(t, err)
		require.Equal(t, fsm.Key("k"), spec.Options().Key)
	}
	require.Equal(t, 1, calls)
}

func TestDeclaredKeyFaults(t *testing.T) {
	t.Parallel()
	spec := coupons.New("a")
	panics := fsm.Declare[int, fsm.None]("coupon", fsm.KeyBy(func(int) fsm.Key { panic("no key") }))
	hashed := fsm.Declare[cart, string]("coupon", fsm.KeyFromState())
	for name, c := range map[string]struct {
		spec fsm.Spec
		says string
	}{
		"empty":             {coupons.New(""), `machine "coupon" version 1 declares its keys: the key of this state: empty`},
		"long":              {coupons.New(code(long(513))), "the key of this state: 513 bytes, at most 512"},
		"no text":           {coupons.New("\xff"), "the key of this state: not valid UTF-8"},
		"NUL":               {coupons.New("a\x00"), "the key of this state: contains a NUL byte"},
		"panic":             {panics.New(1), "panic: no key"},
		"does not encode":   {hashed.New(cart{Extra: math.NaN()}), "the key of this state: from state fsm_test.cart: json: unsupported value: NaN"},
		"another key":       {spec.Key("b"), `of this state it is "a", and the spec says "b": leave the spec's Key out`},
		"empty key":         {spec.Key(""), `of this state it is "a", and the spec says ""`},
		"hash":              {spec.KeyFromState(), `and the spec says "sha256:`},
		"a key for a panic": {panics.New(1).Key("k"), "panic: no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := hidden.Spec(c.spec, nil)
			var bad *fsm.SpecError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, "key", bad.Field)
			require.ErrorContains(t, err, c.says)
			requireKeyError(t, err, "coupon")
		})
	}
	_, err := hidden.Spec(panics.New(1), nil)
	require.ErrorAs(t, err, new(*fsm.PanicError))

	_, err = hidden.Spec(spec.Debounce("w", time.Second, 0), nil)
	require.ErrorContains(t, err, "window: debounce with a correlation key that is occupied")
	_, err = hidden.Spec(spec.Retain(fsm.Retention{Done: fsm.RetainNone}), nil)
	require.ErrorContains(t, err, "retain.done: RetainNone, though the scope keeps the key")
}

// Faults that do not depend on the state show without one: engine.New and Check report them.
func TestDeclarationsOfKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	var none func(int) fsm.Key
	ints := func(int) fsm.Key { return "k" }
	for name, c := range map[string]struct {
		check error
		spec  fsm.Spec
		says  string
	}{
		"nil function": {check(fsm.KeyBy(none)), declared(fsm.KeyBy(none)), "key: nil function in KeyBy"},
		"both":         {check(fsm.KeyBy(ints), fsm.KeyFromState()), declared(fsm.KeyBy(ints), fsm.KeyFromState()), "key: declared more than once by KeyFromState and KeyBy"},
		"twice":        {check(fsm.KeyBy(ints), fsm.KeyBy(ints)), declared(fsm.KeyBy(ints), fsm.KeyBy(ints)), "key: declared more than once"},
		"other state":  {check(fsm.KeyBy(func(string) fsm.Key { return "" })), declared(fsm.KeyBy(func(string) fsm.Key { return "" })), "key: KeyBy takes a string, and the state is a int"},
		"other method": {check(fsm.KeyBy(codeKey)), declared(fsm.KeyBy(codeKey)), "key: KeyBy takes a fsm_test.coded, and the state is a int"},
		"scope":        {check(fsm.KeyScope(5)), declared(fsm.KeyScope(5)), "key_scope: 5 is no scope: use one from ScopeLive to ScopeNone"},
		"no row": {check(fsm.KeyFromState(), fsm.KeyScope(fsm.ScopeAll), fsm.Retain(fsm.Retention{Done: fsm.RetainNone})),
			declared(fsm.KeyFromState(), fsm.KeyScope(fsm.ScopeAll), fsm.Retain(fsm.Retention{Done: fsm.RetainNone})), "retain.done: RetainNone, though the scope"},
	} {
		bad, ok := errors.AsType[*fsm.DefinitionError](c.check)
		require.True(t, ok, "%s: %v", name, c.check)
		require.Equal(t, "keyed", bad.Machine)
		require.ErrorContains(t, c.check, c.says, name)
		_, err := hidden.Spec(c.spec, nil)
		require.ErrorContains(t, err, c.says, name)
	}
	lost := fsm.Declare[struct{ n int }, int]("lost", fsm.KeyFromState()) //gendurable:ignore stored the fault is what this tests
	err := fsm.Check(lost.Job(func(context.Context, struct{ n int }) (int, error) { return 0, nil }), foreign{raw: `1`})
	require.ErrorContains(t, err, `machine "lost" version 1: key: KeyFromState: `, "the hash is of plain JSON, whatever the codec")

	require.NoError(t, check(fsm.KeyBy(ints), fsm.KeyScope(fsm.ScopeAll)))
	require.NoError(t, check(fsm.KeyBy(func(any) fsm.Key { return "k" })))
	require.NoError(t, check(fsm.KeyFromState(), fsm.Retain(fsm.Retention{Done: fsm.RetainNone})))
}

func declared(opts ...fsm.DeclareOption) fsm.Spec {
	return fsm.Declare[int, int]("keyed", opts...).New(1)
}

func check(opts ...fsm.DeclareOption) error {
	return fsm.Check(fsm.Declare[int, int]("keyed", opts...).Job(func(context.Context, int) (int, error) { return 0, nil }))
}

// Children have the key, and nodes have none.
func TestDeclaredKeysInOutcomes(t *testing.T) {
	t.Parallel()
	spawn := func(specs ...fsm.Spec) (*step.Commit, error) {
		return run(t, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, specs...) })
	}
	out, err := spawn(coupons.New("a"), coupons.New("b"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, []string{out.Spawn[0].Key, out.Spawn[1].Key})
	require.Equal(t, step.ScopeAll, out.Spawn[0].Scope)

	_, err = spawn(coupons.New("a"), coupons.New(""))
	require.ErrorContains(t, err, `outcome: children[1].key: machine "coupon" version 1 declares its keys: the key of this state: empty`)
	requireKeyError(t, err, "coupon")

	_, err = run(t, func(v *cartVisit) fsm.Outcome {
		return v.ScheduleGraph("end", v.State, fsm.Node("n", coupons.New("a")))
	})
	require.ErrorContains(t, err, "outcome: nodes[0].key: machine \"coupon\" version 1 declares its keys: a node has a name")
	requireKeyError(t, err, "coupon")
	_, err = added(t, "own", fsm.Node("n", coupons.New("a")))
	require.ErrorContains(t, err, "outcome: add[0].key: machine \"coupon\" version 1 declares its keys: a node has a name")
	requireKeyError(t, err, "coupon")
}

// A process that runs the machine knows that it declares its keys, whatever declaration a spec is
// made of.
func TestSpecsWithoutTheDeclaredKey(t *testing.T) {
	t.Parallel()
	m := hidden.Machine(coupons.Job(func(context.Context, code) (fsm.None, error) { return fsm.None{}, nil }))
	require.True(t, m.Keyed)
	require.False(t, hidden.Machine(two(finish)).Keyed)
	env := &step.Env{Codec: fsm.JSON{}, Machine: func(name string, _ int) *step.Machine {
		if name == m.Name {
			return m
		}
		return nil
	}}
	forgetful := fsm.Declare[code, fsm.None]("coupon")
	_, err := hidden.Spec(forgetful.New("a"), env)
	require.ErrorContains(t, err, "spec: key: machine \"coupon\" version 1 declares its keys: this spec has none")
	requireKeyError(t, err, "coupon")
	for _, good := range []fsm.Spec{coupons.New("a"), forgetful.New("a").Key("a"), cartMachine.New(cart{})} {
		_, err = hidden.Spec(good, env)
		require.NoError(t, err)
	}
	stored, err := hidden.Spec(forgetful.New("a"), nil)
	require.NoError(t, err)
	restored, err := hidden.Restore(stored)
	require.NoError(t, err)
	_, err = hidden.Spec(restored, env)
	require.NoError(t, err, "the spec of a schedule, whose occurrences have keys")
}

// Programs that know no types see that the machine declares its keys.
func TestDiagramsSayWhetherKeysAreDeclared(t *testing.T) {
	t.Parallel()
	text := func(d fsm.Definition) string {
		raw, err := json.Marshal(fsm.DiagramOf(d))
		require.NoError(t, err)
		return string(raw)
	}
	job := func(context.Context, code) (fsm.None, error) { return fsm.None{}, nil }
	require.JSONEq(t, `{"machine": "coupon", "version": 1, "initial": "start", "keyed": true, "steps": [{"name": "start"}]}`, text(coupons.Job(job)))
	require.JSONEq(t, `{"machine": "coupon", "version": 1, "initial": "start", "steps": [{"name": "start"}]}`, text(fsm.Declare[code, fsm.None]("coupon").Job(job)))
}
