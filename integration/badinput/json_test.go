package badinput

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// verbatim is a codec that checks nothing: the engine gets the text that a test calls JSON. It
// takes out the spaces that Postgres adds, as every codec does that makes a value of the text;
// otherwise a text at the limit would be over it when it is passed on.
type verbatim struct{}

func (verbatim) Encode(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	return json.Marshal(v)
}

func (verbatim) Decode(raw json.RawMessage, v any) error {
	if to, ok := v.(*json.RawMessage); ok {
		var compact bytes.Buffer
		err := json.Compact(&compact, raw)
		*to = compact.Bytes()
		return err
	}
	return json.Unmarshal(raw, v)
}

const (
	// mostNested and mostBytes are the documented bounds.
	mostNested = 5_000
	mostBytes  = step.DefaultPayloadBytes
)

// badJSON are texts that JSON allows, or that a codec may produce, and that cause trouble
// somewhere.
var badJSON = map[string]string{
	"nothing": "", "space": " ", "null": "null", "object": `{"a":[1,"b",null,true]}`, "two values": "{}{}", "half": `{"a":`,
	"NUL": `"\u0000"`, "raw NUL": "\"\x00\"", "NUL in a key": `{"\u0000":1}`, "NUL that is none": `"\\u0000"`,
	"high surrogate": `"\ud800"`, "low surrogate": `"\udc00"`, "pair": `"\ud83d\ude00"`, "swapped pair": `"\ude00\ud83d"`,
	"surrogate before escape": `"\ud800\n"`, "two high ones": `"\ud800\ud800\udc00"`,
	"invalid UTF-8": "\"\xff\"", "surrogate as UTF-8": "\"\xed\xa0\x80\"", "overlong": "\"\xc0\x80\"", "control": "\"\x1f\"",
	"replacement": `"\ufffd"`, "noncharacter": "\"\uffff\U0010ffff\"",
	"1e400": "1e400", "1e-400": "1e-400", "2^53+1": "9007199254740993", "1e131071": "1e131071", "1e131072": "1e131072", "1e200000": "1e200000",
	"1e-16383": "1e-16383", "1e-16384": "1e-16384", "0e99999999999": "0e99999999999", "0e-99999999999": "0e-99999999999", "-0": "-0",
	"1E+2": "1E+2", "0.1000": "0.1000", "0.10e-16379": "0.10e-16379", "many digits": "[1e131071,1e131071,1e131071,1e131071,1e131071,1e131071,1e131071,1e131071]",
	"same key": `{"a":1,"a":2}`, "same key escaped": `{"a":1,"\u0061":2}`, "cases": `{"a":1,"A":2}`, "empty key": `{"":{"":""}}`,
	"keys in disorder": `{"bb":1,"a":2,"ccc":3}`, "NaN": "NaN", "Infinity": "-Infinity", "hex": "0x1", "comment": "{/**/}", "comma": "[1,]",
	"byte order mark": "\ufeff{}", "leading zero": "01", "spaces": "\t\r\n [ 1 , 2 ] ",
}

var letter = fsm.DeclareSignal[json.RawMessage]("letter")

type parcel = fsm.Visit[json.RawMessage, json.RawMessage]

// A parcel goes through all of these places: state of an insert, state and result of a child, state
// of a park, payload, result.
var (
	vessel = fsm.Declare[json.RawMessage, json.RawMessage]("vessel")
	crate  = fsm.Declare[json.RawMessage, json.RawMessage]("crate")
)

// FuzzStoredJSON tests that a text that a codec made is stored and comes back as the same value at
// every place, or is refused at every place. It must be refused exactly if Postgres would refuse
// it, or if it is over a documented limit.
func FuzzStoredJSON(f *testing.F) {
	add := seeds(f)
	for _, name := range slices.Sorted(maps.Keys(badJSON)) {
		add([]byte(badJSON[name]), uint16(0), uint32(0))
	}
	for _, nested := range []uint16{1, mostNested, mostNested + 1, 10_000, 60_000} {
		add([]byte("1"), nested, uint32(0))
	}
	for _, padding := range []uint32{mostBytes - 6, mostBytes - 5, mostBytes + 1} { // with quotes, brackets, comma and the 1: the limit, and over it
		add([]byte("1"), uint16(0), padding)
	}
	r := &rig{}
	r.start(f, verbatim{}, r.vessel(), crate.Job(func(_ context.Context, state json.RawMessage) (json.RawMessage, error) { return state, nil }))
	f.Fuzz(func(t *testing.T, core []byte, nested uint16, padding uint32) {
		raw := wrapped(core, nested, padding)
		acceptable := r.takes(t, raw)
		x := r.begin(t)
		defer x.finish()
		key, p := x.put(input{})
		id, err := x.insert(vessel.New(raw).Key(key))
		if err != nil {
			require.False(t, acceptable, "refused without need: %v", err)
			requireSpecError(t, err, "state")
			x.refusedEverywhere(raw)
			return
		}
		_, err = r.eng.Signal(t.Context(), id, letter.With(raw))
		require.NoError(t, err)
		i := x.ended(id)
		require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
		requireSameJSON(t, raw, i.State, "state")
		requireSameJSON(t, raw, i.Result, "result")
		require.Len(t, p.seen(), 5)
		for _, s := range p.seen() {
			requireSameJSON(t, raw, s.raw, s.where)
		}
	})
}

func wrapped(core []byte, nested uint16, padding uint32) json.RawMessage {
	raw := core
	if nested > 0 {
		raw = slices.Concat(bytes.Repeat([]byte("["), int(nested)), core, bytes.Repeat([]byte("]"), int(nested)))
	}
	if padding %= 2 * mostBytes; padding > 0 {
		raw = slices.Concat([]byte(`["`), bytes.Repeat([]byte("x"), int(padding)), []byte(`",`), raw, []byte("]"))
	}
	return raw
}

// vessel sends its state through all places, and records what arrives.
func (r *rig) vessel() fsm.Definition {
	return vessel.Define(
		fsm.Step("start", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			p.see("state of an insert", v.State)
			return v.ScheduleChildren("joined", v.State, crate.New(v.State)), nil
		})),
		fsm.Step("joined", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			for _, c := range crate.Children(v) {
				var state json.RawMessage
				result, err := c.Result()
				if err := errors.Join(err, c.DecodeState(&state)); err != nil {
					return nil, err
				}
				p.see("state of a child", state)
				p.see("result of a child", result)
			}
			return v.Await("received", v.State, letter), nil
		})),
		fsm.Step("received", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			payload, _, err := letter.First(v)
			p.see("state of a park", v.State)
			p.see("payload", payload)
			p.open()
			return v.Done(payload), err
		})),
		// This step offers the text to each place that must refuse it.
		fsm.Step("offer", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			p.open()
			switch p.bad.kind {
			case 0:
				return v.Done(p.bad.state), nil
			case 1:
				return v.Next("offer", p.bad.state), nil
			default:
				return v.ScheduleChildren("offer", v.State, crate.New(p.bad.state)), nil
			}
		}))).OnError(func(_ context.Context, v *parcel, err error) (fsm.Outcome, error) {
		p, unplanned := r.plan(v.Key)
		if unplanned == nil {
			p.fail(err)
		}
		return v.Fail(err), unplanned
	})
}

// planned gives a step its plan.
func (r *rig) planned(run func(p *plan, v *parcel) (fsm.Outcome, error)) fsm.StepFunc[json.RawMessage, json.RawMessage] {
	return func(_ context.Context, v *parcel) (fsm.Outcome, error) {
		p, err := r.plan(v.Key)
		if err != nil {
			return nil, err
		}
		return run(p, v)
	}
}

// refusedEverywhere requires that no other place takes what an insert refuses.
func (x *trial) refusedEverywhere(raw json.RawMessage) {
	x.t.Helper()
	_, err := x.eng.Signal(x.t.Context(), fsm.ID(1<<40), letter.With(raw))
	message, ok := errors.AsType[*fsm.MessageError](err)
	require.True(x.t, ok, "%v", err)
	require.Equal(x.t, "payload", message.Field)
	for kind, field := range []string{"result", "state", "children[0].state"} {
		key, p := x.put(input{kind: uint8(kind), state: raw}) //nolint:gosec // three
		id, err := x.insert(vessel.New(json.RawMessage("{}")).Step("offer").Key(key))
		require.NoError(x.t, err)
		require.Equal(x.t, fsm.FailureDecided, x.ended(id).Failure)
		require.Len(x.t, p.failed(), 1)
		outcome, ok := errors.AsType[*fsm.OutcomeError](p.failed()[0])
		require.True(x.t, ok, "%v", p.failed())
		require.Equal(x.t, field, outcome.Field)
	}
}

// takes asks Postgres itself, and the documented limits.
func (r *rig) takes(t *testing.T, raw []byte) bool {
	t.Helper()
	if len(raw) > mostBytes || nesting(raw) > mostNested {
		return false
	}
	var size int
	err := r.pool.QueryRow(t.Context(), `SELECT octet_length($1::text::jsonb::text)`, string(raw)).Scan(&size)
	if err != nil {
		_, ok := errors.AsType[*pgconn.PgError](err)
		require.True(t, ok, "%v", err)
		return false
	}
	return len(raw)+size <= mostBytes // between half of the limit and all of it, the result depends on how numbers and spaces are counted
}

// nesting returns how deep the brackets go, wherever they stand.
func nesting(raw []byte) (deepest int) {
	depth := 0
	for _, c := range raw {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

// requireSameJSON compares values: Postgres normalises spaces, the order of keys and the spelling
// of numbers, and keeps the last of equal keys.
func requireSameJSON(t *testing.T, want, got []byte, where string) {
	t.Helper()
	a, b := parsed(t, want), parsed(t, got)
	if !same(a, b) {
		require.Fail(t, "it came back changed", "%s: %.200q became %.200q", where, want, got)
	}
}

func parsed(t *testing.T, raw []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	require.NoError(t, d.Decode(&v), "%.200q", raw)
	return v
}

func same(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || sameNumber(string(a), string(b)))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, same)
	default:
		return a == b
	}
}

func sameNumber(a, b string) bool {
	if strings.Trim(strings.SplitN(strings.ToLower(a), "e", 2)[0], "-0.") == "" { // a zero may have any exponent: too much for big.Rat
		return strings.Trim(b, "-0.") == ""
	}
	x, ok := new(big.Rat).SetString(a)
	y, fine := new(big.Rat).SetString(b)
	return ok && fine && x.Cmp(y) == 0
}

func requireSpecError(t *testing.T, err error, fields ...string) {
	t.Helper()
	spec, ok := errors.AsType[*engine.InsertError](err)
	require.True(t, ok, "%T: %v", err, err)
	require.Contains(t, fields, spec.Field, "%v", err)
}
