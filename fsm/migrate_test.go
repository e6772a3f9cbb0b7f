package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

type (
	cents struct{ Cents int }
	price struct {
		Cents    int
		Currency string
	}
	text struct{ Price string }
)

var (
	billV1 = fsm.Declare[cents, string]("bill")
	billV2 = fsm.Declare[price, string]("bill", fsm.Version(2))
	billV3 = fsm.Declare[text, string]("bill", fsm.Version(3))
)

func inEuros(c cents) (price, error) {
	if c.Cents < 0 {
		return price{}, errors.New("a debt")
	}
	return price{c.Cents, "EUR"}, nil
}

func asText(p price) (text, error) { return text{fmt.Sprint(p.Cents, " ", p.Currency)}, nil }

func end[S any](_ context.Context, v *fsm.Visit[S, string]) (fsm.Outcome, error) {
	return v.Done("ended"), nil
}

func TestMigrationFaults(t *testing.T) {
	t.Parallel()
	oneTwo := fsm.Migrate(billV1, billV2, inEuros, fsm.StepNames{"start": "start"})
	twoThree := fsm.Migrate(billV2, billV3, asText, fsm.StepNames{"start": "start"})
	back := func(price) (cents, error) { return cents{}, nil }
	same := func(p price) (price, error) { return p, nil }
	other := fsm.Declare[cents, string]("other")
	otherV2 := fsm.Declare[price, string]("other", fsm.Version(2))
	two := func(m ...fsm.Migration) fsm.Definition {
		return billV2.Define(fsm.Step("start", end[price])).From(m...)
	}
	three := func(m ...fsm.Migration) fsm.Definition { return billV3.Define(fsm.Step("start", end[text])).From(m...) }
	for name, c := range map[string]struct {
		d     fsm.Definition
		field string
		says  string
	}{
		"to a lower version":         {two(fsm.Migrate(billV2, billV1, back, nil)), "from[version 2]", "to version 1, want a newer one"},
		"to the same version":        {two(fsm.Migrate(billV2, billV2, same, nil)), "from[version 2]", "to version 2, want a newer one"},
		"of another name":            {two(fsm.Migrate(other, billV2, inEuros, nil)), "from[version 1]", `it leads from machine "other" to machine "bill"`},
		"of another machine":         {two(fsm.Migrate(other, otherV2, inEuros, nil)), "from[version 1]", `of machine "other"`},
		"no function":                {two(fsm.Migrate[cents, string](billV1, billV2, nil, nil)), "from[version 1]", "nil function"},
		"zero":                       {two(fsm.Migration{}), "from[0]", "the zero Migration"},
		"to an unknown step":         {two(fsm.Migrate(billV1, billV2, inEuros, fsm.StepNames{"start": "end"})), "from[version 1].steps", `no step "end", to which "start" leads`},
		"from a step without a name": {two(fsm.Migrate(billV1, billV2, inEuros, fsm.StepNames{"": "start"})), "from[version 1].steps", "empty"},
		"two ways": {three(twoThree, oneTwo, fsm.Migrate(billV1, billV3, func(cents) (text, error) { return text{}, nil }, nil)),
			"from[version 1]", "2 migrations from it, want one"},
		"a gap in the chain": {three(oneTwo), "from[version 1]", "leads to version 2, and nothing here leads from there to 3"},
		"beyond it":          {two(twoThree), "from[version 2]", "leads to version 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := hidden.Machine(c.d).Faults
			require.NotEmpty(t, faults)
			var fault *fsm.DefinitionError
			require.ErrorAs(t, faults[0], &fault)
			require.Equal(t, c.field, fault.Field)
			require.ErrorContains(t, fault, c.says)
		})
	}
	require.Empty(t, hidden.Machine(three(oneTwo, twoThree)).Faults)
	require.Empty(t, hidden.Machine(three(twoThree, oneTwo)).Faults, "in any order")
}

// registry is a Reader that knows definitions.
type registry struct {
	stored
	definitions []fsm.Definition
}

func (r registry) Definition(machine string, version int) fsm.Definition {
	for _, d := range r.definitions {
		if m := hidden.Machine(d); m.Name == machine && m.Version == version {
			return d
		}
	}
	return nil
}

func TestTypedReadsConvert(t *testing.T) {
	t.Parallel()
	three := billV3.Define(fsm.Step("start", end[text])).From(
		fsm.Migrate(billV1, billV2, inEuros, nil), fsm.Migrate(billV2, billV3, asText, nil))
	raw := fsm.RawInstance{ID: 7, Machine: "bill", Version: 1, Status: fsm.StatusDone, State: json.RawMessage(`{"Cents": 5}`), Result: json.RawMessage(`"r"`)}
	from := registry{stored{i: raw}, []fsm.Definition{three}}
	i, err := billV3.Get(t.Context(), from, raw.ID)
	require.NoError(t, err)
	require.Equal(t, text{"5 EUR"}, i.State, "by the whole chain")
	require.Equal(t, []any{1, "r"}, []any{i.Version, i.Result})
	r, err := billV3.Wait(t.Context(), from, raw.ID)
	require.NoError(t, err)
	require.Equal(t, "r", r, "both have the same type of result")

	from.i.State = json.RawMessage(`{"Cents": -5}`)
	_, err = billV3.Get(t.Context(), from, raw.ID)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	require.ErrorContains(t, err, "instance 7: decode state: convert version 1 to 2: a debt")

	numbers := fsm.Declare[price, int]("bill", fsm.Version(2))
	from.definitions = []fsm.Definition{numbers.Job(func(context.Context, price) (int, error) { return 0, nil }).
		From(fsm.Migrate(billV1, numbers, func(cents) (price, error) { panic("oh") }, nil))}
	_, err = numbers.Wait(t.Context(), from, raw.ID)
	require.Equal(t, &fsm.VersionError{ID: 7, Machine: "bill", Field: "result", Got: 1, Want: 2}, err, "the types of the results differ")
	_, err = numbers.Get(t.Context(), from, raw.ID)
	require.ErrorAs(t, err, new(*fsm.PanicError))

	// Children are read by the definitions of the parent's process.
	c := claim(`{}`)
	c.Round, c.Visit = 3, 3
	c.Children = []step.Child{{ID: 8, Machine: "bill", Version: 1, Status: "done", State: json.RawMessage(`{"Cents": 6}`), Result: json.RawMessage(`"c"`)}}
	c.Env = &step.Env{Machine: func(string, int) *step.Machine { return hidden.Machine(three) }}
	inStep(t, c, func(_ context.Context, v *cartVisit) {
		child := billV3.Children(v)[0]
		result, err := child.Result()
		require.NoError(t, err)
		require.Equal(t, "c", result)
		var state text
		require.NoError(t, child.DecodeState(&state))
		require.Equal(t, text{"6 EUR"}, state)
	})
}
