package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func TestJSONKeepsNumbers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"9007199254740993", "-9223372036854775809", "1e400", "0.1000000000000000055511151231257827", "1.0"} {
		var v any
		require.NoError(t, fsm.JSON{}.Decode(json.RawMessage(text), &v))
		require.Equal(t, json.Number(text), v)
		raw, err := fsm.JSON{}.Encode(map[string]any{"n": v})
		require.NoError(t, err)
		require.Equal(t, `{"n":`+text+`}`, string(raw))
	}
}

// T62: a number that the type cannot hold is an error of the step, not a crash loop.
func TestNumbersThatDoNotFit(t *testing.T) {
	t.Parallel()
	type price struct{ Euro float64 }
	m := fsm.Declare[price, fsm.None]("price")
	d := m.Define(fsm.Step("start", func(context.Context, *fsm.Visit[price, fsm.None]) (fsm.Outcome, error) { return nil, nil }))
	_, err := runClaim(t, d, claim(`{"Euro":1e400}`))
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	_, err = m.DecodeState(fsm.JSON{}, json.RawMessage(`{"Euro":1e400}`))
	require.ErrorAs(t, err, new(*fsm.DecodeError))
}

func TestJSONDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ raw, says string }{
		"nothing":        {"", "no value"},
		"space":          {" \n", "no value"},
		"two values":     {`{} {}`, "more than one value"},
		"garbage behind": {`{}x`, "more than one value"},
		"half a value":   {`{"id":`, "unexpected EOF"},
		"another type":   {`{"id":"x"}`, "cannot unmarshal"},
		"too deep":       {strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), "max depth"},
	} {
		_, err := cartMachine.DecodeState(fsm.JSON{}, json.RawMessage(c.raw))
		var bad *fsm.DecodeError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, "state", bad.Field, name)
		require.ErrorContains(t, err, c.says, name)
	}
	state, err := cartMachine.DecodeState(fsm.JSON{}, json.RawMessage(` {"id":3} `))
	require.NoError(t, err)
	require.Equal(t, cart{ID: 3}, state)
}

type (
	textual  string
	embedded struct{ Inner string }
)

func (t textual) MarshalText() ([]byte, error) { return []byte(t), nil }

func TestJSONRefusesBrokenText(t *testing.T) {
	t.Parallel()
	const bad = "a\xffb"
	text := bad
	for name, v := range map[string]any{
		"string":    bad,
		"field":     struct{ S string }{bad},
		"embedded":  struct{ embedded }{embedded{bad}},
		"pointer":   &text,
		"in slice":  []string{"", bad},
		"in array":  [1]string{bad},
		"map key":   map[string]int{bad: 1},
		"map value": map[string]any{"k": bad},
		"text":      textual(bad),
		"deep":      []any{map[string]any{"k": []*string{nil, &text}}},
	} {
		_, err := fsm.JSON{}.Encode(v)
		require.ErrorContains(t, err, "UTF-8", name)
	}
	for name, v := range map[string]any{
		"replacement character": "\ufffd",
		"its escape in raw":     json.RawMessage(`"\ufffd"`),
		"unexported": struct {
			S string
			s string `json:"-"`
		}{"\ufffd", bad},
		"left out": struct {
			S json.RawMessage
			T string `json:"-"`
		}{json.RawMessage(`"\ufffd"`), bad},
		"bytes": struct {
			R json.RawMessage
			B []byte
			P *textual
		}{json.RawMessage(`"\ufffd"`), []byte(bad), nil},
	} {
		_, err := fsm.JSON{}.Encode(v)
		require.NoError(t, err, name)
	}
}

func TestJSONDoesNotEscapeHTML(t *testing.T) {
	t.Parallel()
	raw, err := fsm.JSON{}.Encode("<a&b>")
	require.NoError(t, err)
	require.Equal(t, `"<a&b>"`, string(raw))
}

// Each of these values was tried as jsonb on Postgres 15.
func TestStorableJSON(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[fsm.None, json.RawMessage]("raw")
	done := func(raw string) error {
		d := machine.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[fsm.None, json.RawMessage]) (fsm.Outcome, error) {
			return v.Done(json.RawMessage(raw)), nil
		}))
		_, err := runClaim(t, d, claim(`{}`))
		return err
	}
	for _, raw := range []string{
		`null`, `true`, `0`, `-0`, `1.50`, `"\ud83d\ude00"`, `"\\u0000"`, `"\\ud800"`, `"\"\u0001"`, `"😀"`, `{"a":[1,{}]}`, `"]]]"`,
		`1e131071`, `0.1e131072`, `0.01e131073`, `1e-16383`, `0.5e-16382`, `0e300000`, `0e999999999`, `-1E+5`, `100e131069`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), `"` + strings.Repeat("[", 6000) + `"`,
		strings.Repeat("9", 131_072), `0.` + strings.Repeat("1", 16_383), `[` + strings.Repeat("[],", 9999) + `[]]`,
	} {
		require.NoError(t, done(raw), "%.60s", raw)
	}
	for raw, says := range map[string]string{
		`"\u0000"`:                         "NUL",
		`{"a\u0000":1}`:                    "NUL",
		`["\\\u0000"]`:                     "NUL",
		`"\ud800"`:                         "lone high",
		`"\ud800x"`:                        "lone high",
		`"\uD800\u0041"`:                   "lone high",
		`"\ud800\ud800"`:                   "lone high",
		`"\udc00"`:                         "lone low",
		`"\ude00\ud83d"`:                   "lone low",
		`"\ud83d\ude00\ude00"`:             "lone low",
		"\"\xff\"":                         "UTF-8",
		`1e131072`:                         "numeric",
		`12e131071`:                        "numeric",
		`0.001e131075`:                     "numeric",
		`1e-16384`:                         "numeric",
		`0.5e-16383`:                       "numeric",
		`0e-16384`:                         "numeric",
		`100e-16385`:                       "numeric",
		`0e1073741824`:                     "numeric",
		`1e200000`:                         "numeric",
		`{"a":[-1e200000]}`:                "numeric",
		`1e99999999999999999999`:           "numeric",
		`1e-99999999999999999999`:          "numeric",
		strings.Repeat("9", 131_073):       "numeric",
		`0.` + strings.Repeat("1", 16_384): "numeric",
		strings.Repeat("[", 5001) + strings.Repeat("]", 5001):           "5000 deep",
		strings.Repeat(`{"a":`, 5001) + "1" + strings.Repeat("}", 5001): "5000 deep",
	} {
		var bad *fsm.OutcomeError
		err := done(raw)
		require.ErrorAs(t, err, &bad, "%.60s", raw)
		require.Equal(t, "result", bad.Field)
		require.ErrorContains(t, err, says, "%.60s", raw)
	}
}

// Ten bytes of JSON can stand for a hundred thousand digits: a row that is too large to be read
// again must not be stored.
func TestLimitCountsDigits(t *testing.T) {
	t.Parallel()
	bomb := func(n int) json.RawMessage {
		return json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1e131071,", n), ",") + "]")
	}
	_, err := run(t, func(v *cartVisit) fsm.Outcome { return v.Next("end", cart{Extra: bomb(7)}) })
	require.NoError(t, err)
	_, err = run(t, func(v *cartVisit) fsm.Outcome { return v.Next("end", cart{Extra: bomb(8)}) })
	require.ErrorIs(t, err, fsm.ErrTooLarge)
}

// foreign is a codec that returns what its fields hold.
type foreign struct {
	raw string
	err error
}

func (f foreign) Encode(any) (json.RawMessage, error) { return json.RawMessage(f.raw), f.err }
func (f foreign) Decode(json.RawMessage, any) error   { return f.err }

func TestForeignCodecs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		codec fsm.Codec
		says  string
	}{
		"empty":        {foreign{}, "not valid JSON"},
		"no JSON":      {foreign{raw: `{`}, "not valid JSON"},
		"bare word":    {foreign{raw: `nil`}, "not valid JSON"},
		"unterminated": {foreign{raw: `"a`}, "not valid JSON"},
		"escape":       {foreign{raw: `"\`}, "not valid JSON"},
		"half escape":  {foreign{raw: `"\u00`}, "not valid JSON"},
		"odd number":   {foreign{raw: `1e`}, "not valid JSON"},
		"odder number": {foreign{raw: `-+.e5`}, "not valid JSON"},
		"two":          {foreign{raw: `{}{}`}, "not valid JSON"},
		"NUL":          {foreign{raw: `"\u0000"`}, "NUL"},
		"raw NUL":      {foreign{raw: "\"\x00\""}, "not valid JSON"},
		"broken":       {foreign{raw: "\"\xff\""}, "UTF-8"},
	} {
		_, err := hidden.Spec(cartMachine.New(cart{}), &step.Env{Codec: c.codec})
		require.ErrorContains(t, err, c.says, name)
	}
	_, err := hidden.Spec(cartMachine.New(cart{}), &step.Env{Codec: foreign{err: errBroken}})
	require.ErrorIs(t, err, errBroken)
	_, err = cartMachine.DecodeResult(foreign{err: errBroken}, nil)
	require.ErrorIs(t, err, errBroken)
}

func TestNone(t *testing.T) {
	t.Parallel()
	raw, err := fsm.JSON{}.Encode(fsm.None{})
	require.NoError(t, err)
	require.Equal(t, "{}", string(raw))
}

// FuzzState puts any text into a state. The step must end with a storable commit that decodes to
// the same text, or with a typed error.
func FuzzState(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\x00", "\xff", "\ufffd", `"\u0000`, "😀", "\xed\xa0\x80"} {
		f.Add(seed, 1.5)
	}
	f.Add("", math.Inf(1))
	m := fsm.Declare[string, float64]("fuzz")
	f.Fuzz(func(t *testing.T, text string, number float64) {
		d := hidden.Machine(m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, float64]) (fsm.Outcome, error) {
			if v.State == text {
				return v.Done(number), nil
			}
			return v.Next("start", text), nil
		})))

		c := claim(`"another"`)
		if text == "another" {
			c.State = json.RawMessage(`""`)
		}
		out, err := d.Steps["start"].Run(t.Context(), c)
		if err != nil {
			require.ErrorAs(t, err, new(*fsm.OutcomeError))
			return
		}
		c.State = out.State
		out, err = d.Steps["start"].Run(t.Context(), c)
		if err != nil {
			var bad *fsm.OutcomeError
			require.True(t, errors.As(err, &bad) && bad.Field == "result", err)
			return
		}
		require.Equal(t, step.Done, out.Kind, "the state came back changed")
		require.True(t, json.Valid(out.Result))
	})
}
