package fsm_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// cash encodes itself by methods of its pointer, as big.Int and many other types do.
type cash struct{ cents int64 }

func (m *cash) MarshalJSON() ([]byte, error) { return json.Marshal(struct{ Cents int64 }{m.cents}) }

func (m *cash) UnmarshalJSON(raw []byte) error {
	var in struct{ Cents int64 }
	err := json.Unmarshal(raw, &in)
	m.cents = in.Cents
	return err
}

// label does so by MarshalText.
type label struct{ text string }

func (l *label) MarshalText() ([]byte, error) { return []byte(l.text), nil }

func (l *label) UnmarshalText(text []byte) error {
	l.text = string(text)
	return nil
}

type purchase struct {
	ID    int64
	Total cash
	Parts []cash
	Two   [2]cash
	Wei   big.Int
	Tag   label
	More  *purchase `json:",omitempty"`
}

func bought(cents int64) purchase {
	return purchase{ID: 7, Total: cash{cents}, Parts: []cash{{cents + 1}}, Two: [2]cash{{cents + 2}, {cents + 3}},
		Wei: *big.NewInt(cents + 4), Tag: label{"a"}, More: &purchase{Total: cash{cents + 5}}}
}

// Each way by which a value is stored keeps what methods of the pointer write.
func TestMethodsOfPointersCount(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[purchase, cash]("purchase")
	type visit = fsm.Visit[purchase, cash]
	want := bought(100)
	run := func(out func(v *visit) fsm.Outcome) *step.Commit {
		f := func(_ context.Context, v *visit) (fsm.Outcome, error) { return out(v), nil }
		c := claim(`{}`)
		c.Attempt = 1
		commit, err := runClaim(t, m.Define(fsm.Step("start", f)), c)
		require.NoError(t, err)
		return commit
	}
	child := func(c *step.Commit) json.RawMessage { return c.Spawn[0].State }
	for name, stored := range map[string]json.RawMessage{
		"next":      run(func(v *visit) fsm.Outcome { return v.Next("start", want) }).State,
		"await":     run(func(v *visit) fsm.Outcome { return v.Await("start", want, fsm.DeclareSignal[fsm.None]("s")) }).State,
		"retry":     run(func(v *visit) fsm.Outcome { return v.Retry(want, 0) }).State,
		"again":     run(func(v *visit) fsm.Outcome { return v.AgainWith(want, 0) }).State,
		"children":  run(func(v *visit) fsm.Outcome { return v.ScheduleChildren("start", want) }).State,
		"the child": child(run(func(v *visit) fsm.Outcome { return v.ScheduleChildren("start", v.State, m.New(want)) })),
		"unless": run(func(v *visit) fsm.Outcome {
			return v.Done(cash{}).Unless("start", fsm.DeclareSignal[fsm.None]("s")).With(want)
		}).Unless.State,
		"published": published(t, want),
		"changed":   changed(t, m.SetState(want), `{}`),
		"inserted":  inserted(t, m.New(want)),
		"signalled": signalled(t, fsm.DeclareSignal[purchase]("s").With(want)),
		"untyped":   inserted(t, fsm.Declare[any, any]("any").New(want)),
	} {
		got, err := m.DecodeState(fsm.JSON{}, stored)
		require.NoError(t, err, name)
		require.Equal(t, want, got, "%s: %s", name, stored)
	}
	result, err := m.DecodeResult(fsm.JSON{}, run(func(v *visit) fsm.Outcome { return v.Done(cash{99}) }).Result)
	require.NoError(t, err)
	require.Equal(t, cash{99}, result)

	require.NotEqual(t, m.New(bought(1)).KeyFromState().Options().Key, m.New(bought(2)).KeyFromState().Options().Key)
}

func published(t *testing.T, progress any) (stored json.RawMessage) {
	t.Helper()
	c := claim(`{}`)
	c.Publish = func(_ context.Context, text json.RawMessage) error {
		stored = text
		return nil
	}
	_, err := runClaim(t, fsm.Declare[any, any]("publisher").Define(fsm.Step("start",
		func(ctx context.Context, v *fsm.Visit[any, any]) (fsm.Outcome, error) {
			return v.Done(nil), v.Publish(ctx, progress)
		})), c)
	require.NoError(t, err)
	return stored
}

func changed(t *testing.T, by fsm.Change, was string) json.RawMessage {
	t.Helper()
	state, err := hidden.Change(by, &step.Env{Codec: fsm.JSON{}, Limits: step.Limits{}.WithDefaults()},
		fsm.RawInstance{Machine: "purchase", Version: 1, State: json.RawMessage(was)})
	require.NoError(t, err)
	return state
}

func inserted(t *testing.T, s fsm.Spec) json.RawMessage {
	t.Helper()
	erased, err := hidden.Spec(s, &step.Env{})
	require.NoError(t, err)
	return erased.State
}

func signalled(t *testing.T, m fsm.Message) json.RawMessage {
	t.Helper()
	erased, err := hidden.Signal(m, &step.Env{})
	require.NoError(t, err)
	return erased.Payload
}

// pointers is a codec that notes what it gets.
type pointers struct {
	fsm.JSON

	got *[]any
}

func (p pointers) Encode(v any) (json.RawMessage, error) {
	*p.got = append(*p.got, v)
	return p.JSON.Encode(v)
}

func TestCodecsGetPointers(t *testing.T) {
	t.Parallel()
	var got []any
	env := &step.Env{Codec: pointers{got: &got}}
	for _, s := range []fsm.Spec{
		fsm.Declare[cash, fsm.None]("a").New(cash{1}), fsm.Declare[*cash, fsm.None]("b").New(&cash{2}),
		fsm.Declare[any, fsm.None]("c").New(cash{3}), fsm.Declare[any, fsm.None]("d").New(nil),
	} {
		_, err := hidden.Spec(s, env)
		require.NoError(t, err)
	}
	require.Equal(t, []any{&cash{1}, &cash{2}, &cash{3}, nil}, got)
	_, err := hidden.Spec(fsm.Declare[func(), fsm.None]("e").New(nil), env)
	require.ErrorContains(t, err, "no JSON of func()", "it embeds JSON, and so its CheckType")
}

//nolint:unused // JSON is to lose such fields
type (
	shape     interface{ Area() float64 }
	concealed struct{ amount int }
	onlyText  struct{ X int }
	picks     struct{ Of shape } // decodes itself
	tree      struct{ Left, Right *tree }
	inner     struct{ A int }
	pair      struct{ A, B int }

	number      int
	item[T any] struct {
		Of    T
		cache map[string]T
	}
	basket  struct{ Items []item[number] }
	halves  struct{ Shown, hidden int }
	Halves  halves
	tangled struct {
		Left *tangled `json:",omitempty"`
		Of   map[string]tangled

		hidden, N int
	}

	// entity is as ent generates one.
	entity struct {
		config `json:"-"`

		ID           int         `json:"id,omitempty"`
		Edges        entityEdges `json:"edges"`
		selectValues entsql.SelectValues
	}
	config      struct{ debug bool }
	Entity      entity
	entityEdges struct {
		Of          []*entity `json:"of,omitempty"`
		loadedTypes [1]bool
	}
	rebuilt struct {
		Of    []int
		index map[int]int // made by UnmarshalJSON
	}
)

func (*rebuilt) UnmarshalJSON([]byte) error { return nil }

func (onlyText) MarshalText() ([]byte, error) { return []byte("x"), nil }

func (*picks) UnmarshalJSON([]byte) error { return nil }

func (pair) MarshalText() ([]byte, error) { return []byte("x"), nil }

func (*pair) UnmarshalText([]byte) error { return nil }

// A type that cannot come back is a fault of the declaration.
func TestTypesThatDoNotComeBack(t *testing.T) {
	t.Parallel()
	for says, of := range map[string][]reflect.Type{
		"which type to decode": {
			reflect.TypeFor[shape](), reflect.TypeFor[struct{ Err error }](), reflect.TypeFor[map[string][]fmt.Stringer](),
			reflect.TypeFor[struct{ inner struct{ E error } }]().Field(0).Type,
		},
		"there is no JSON of": {
			reflect.TypeFor[func()](), reflect.TypeFor[chan int](), reflect.TypeFor[complex64](),
			reflect.TypeFor[struct {
				F func() `json:",omitempty"`
			}](),
		},
		"are unexported": {
			reflect.TypeFor[concealed](), reflect.TypeFor[*concealed](), reflect.TypeFor[[]concealed](), reflect.TypeFor[struct{ H *concealed }](),
			reflect.TypeFor[struct{ Where *time.Location }](), reflect.TypeFor[struct{ concealed }](), reflect.TypeFor[struct{ N atomic.Int64 }](),
		},
		"keeps nobody out": {
			reflect.TypeFor[struct{ Mu sync.Mutex }](), reflect.TypeFor[struct {
				mu *sync.RWMutex
				N  int
			}](),
			reflect.TypeFor[struct {
				sync.Mutex
				N int
			}](),
		},
		"sync.Map is not stored, and each run of a step has another one: take it out": {
			reflect.TypeFor[struct{ By sync.Map }](), reflect.TypeFor[struct {
				by *sync.Map
				N  int
			}](),
		},
		"sync.Once is not stored, and each run of a step has another one: take it out": {
			reflect.TypeFor[struct {
				once sync.Once
				N    int
			}](),
		},
		"sync.WaitGroup is not stored, and each run of a step has another one: take it out": {reflect.TypeFor[struct{ All sync.WaitGroup }]()},
		"or one with MarshalJSON and UnmarshalJSON": {
			reflect.TypeFor[struct{ halves }](),
		},
		".more: the field is unexported": {
			reflect.TypeFor[struct {
				Entity
				Total, more int
			}](),
		},
		"fsm_test.basket.Items[].cache: the field is unexported": {
			reflect.TypeFor[basket](), reflect.TypeFor[*basket](),
		},
		"[].cache: the field is unexported": {
			reflect.TypeFor[map[string][2]*item[int]](), reflect.TypeFor[[]item[string]](),
		},
		".hidden: the field is unexported": {
			reflect.TypeFor[struct{ halves }](), reflect.TypeFor[struct{ Of struct{ *Halves } }](), reflect.TypeFor[tangled](),
		},
		".number: the field is unexported": {
			reflect.TypeFor[struct {
				number
				N int
			}](),
		},
		"method of the pointer": {
			reflect.TypeFor[map[string]cash](), reflect.TypeFor[map[int]big.Int](), reflect.TypeFor[map[string]struct{ Of [2]cash }](),
			reflect.TypeFor[struct{ Of map[string]label }](),
		},
		"no UnmarshalText":    {reflect.TypeFor[onlyText](), reflect.TypeFor[[]onlyText]()},
		"JSON has no keys":    {reflect.TypeFor[map[float64]int](), reflect.TypeFor[map[bool]int](), reflect.TypeFor[map[any]int](), reflect.TypeFor[map[onlyText]int]()},
		"unexported fsm_test": {reflect.TypeFor[struct{ *inner }]()},
	} {
		for _, one := range of {
			require.ErrorContains(t, fsm.JSON{}.CheckType(one), says, one.String())
		}
	}
}

func TestTypesThatComeBack(t *testing.T) {
	t.Parallel()
	type embeds struct {
		inner
		Note string
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[any](), reflect.TypeFor[fsm.None](), reflect.TypeFor[purchase](), reflect.TypeFor[map[string]*cash](), reflect.TypeFor[tree](),
		reflect.TypeFor[time.Time](), reflect.TypeFor[uuid.UUID](), reflect.TypeFor[url.URL](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[json.RawMessage](),
		reflect.TypeFor[map[netip.Addr][]byte](), reflect.TypeFor[map[pair]string](), reflect.TypeFor[textual](), reflect.TypeFor[picks](), reflect.TypeFor[embeds](),
		reflect.TypeFor[map[string]any](), reflect.TypeFor[time.Duration](), reflect.TypeFor[[]map[fsm.ID]*[3]float64](),
		reflect.TypeFor[struct {
			sync.Mutex `json:"-"`

			N     int
			cache map[string]int `json:"-"` // its loss is meant
			none  struct{}
			Skip  func() `json:"-"`
			_     [0]func()

			noComparison [0]func()
		}](),
		reflect.TypeFor[struct {
			*Entity
			Total int
		}](), reflect.TypeFor[struct{ Of struct{ Entity } }](), reflect.TypeFor[entity](), reflect.TypeFor[rebuilt](),
		reflect.TypeFor[sql.NullString](), reflect.TypeFor[sql.Null[time.Time]](), reflect.TypeFor[big.Rat](), reflect.TypeFor[netip.Prefix](),
		reflect.TypeFor[regexp.Regexp](), reflect.TypeFor[map[string]sql.NullTime](),
		reflect.TypeFor[struct {
			concealed func() `json:"-"`
		}](),
	} {
		require.NoError(t, fsm.JSON{}.CheckType(of), of.String())
	}
}

func TestDeclaredTypesAreChecked(t *testing.T) {
	t.Parallel()
	type S = struct{ Err error }
	nothing := func(_ context.Context, v *fsm.Visit[S, concealed]) (fsm.Outcome, error) {
		return v.Done(concealed{}), nil
	}
	m := fsm.Declare[S, concealed]("lost")
	d := m.Define(fsm.Step("start", nothing))
	err := fsm.Check(d)
	for _, field := range []string{"state", "result"} {
		require.ErrorContains(t, err, ": "+field+": ")
	}
	require.ErrorAs(t, err, new(*fsm.DefinitionError))
	require.NoError(t, fsm.Check(d, foreign{}), "another codec may know better")

	old := fsm.Declare[int, fsm.None]("lost", fsm.Version(1))
	mid := fsm.Declare[S, fsm.None]("lost", fsm.Version(2))
	now := fsm.Declare[int, fsm.None]("lost", fsm.Version(3))
	err = fsm.Check(now.Define(fsm.Step("start", func(context.Context, *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) { return nil, nil })).From(
		fsm.Migrate(old, mid, func(int) (S, error) { return S{}, nil }, nil), fsm.Migrate(mid, now, func(S) (int, error) { return 0, nil }, nil)))
	require.ErrorContains(t, err, "from[version 1].state")

	_, err = hidden.Spec(m.New(S{}), &step.Env{})
	var spec *fsm.SpecError
	require.ErrorAs(t, err, &spec)
	require.Equal(t, "state", spec.Field)
	_, err = hidden.Signal(fsm.DeclareSignal[concealed]("s").With(concealed{1}), &step.Env{})
	var message *fsm.MessageError
	require.ErrorAs(t, err, &message)
	require.Equal(t, "payload", message.Field)
	_, err = runClaim(t, fsm.Declare[any, any]("publisher").Define(fsm.Step("start",
		func(ctx context.Context, v *fsm.Visit[any, any]) (fsm.Outcome, error) {
			return v.Done(nil), v.Publish(ctx, S{})
		})), claim(`{}`))
	require.ErrorContains(t, err, "publish")
	_, err = hidden.Spec(fsm.Declare[map[string]big.Int, any]("k").New(map[string]big.Int{"a": *big.NewInt(1)}).KeyFromState(), &step.Env{Codec: foreign{raw: "{}"}})
	require.ErrorContains(t, err, "method of the pointer", "whatever the codec, a key is made of plain JSON")
}

// An untyped value may hold anything: what would lose its content there is an error.
func TestUntypedValuesKeepTheirContent(t *testing.T) {
	t.Parallel()
	user, err := url.Parse("https://ada:secret@example.org")
	require.NoError(t, err)
	for says, v := range map[string]any{
		"the value[err] holds *errors.errorString": map[string]any{"err": errors.New("x")},
		"the value[0] holds fsm_test.cash":         []any{cash{1}},
		"the value.Of[k][1] holds":                 struct{ Of any }{map[string][]any{"k": {1, concealed{1}}}},
		"no user and no password":                  user,
		"in a map":                                 []any{map[string]cash{"a": {1}}},
	} {
		_, err := fsm.JSON{}.Encode(v)
		require.ErrorContains(t, err, says)
	}
	user.User = nil
	for _, v := range []any{map[string]any{"err": nil, "m": &cash{1}, "t": time.Now(), "n": json.Number("1")}, []any{[]cash{{1}}}, user, cash{1}} {
		_, err := fsm.JSON{}.Encode(v)
		require.NoError(t, err)
	}
}
