package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// sundries is a state of the types that hosts use, encoded as hosts do.
type sundries struct {
	Text   string
	Key    map[string]int
	Whole  int64
	Number float64
	Bytes  []byte
	Any    any // a text, too, behind an interface
}

// FuzzTypedState tests that every typed state that can be stored comes back equal, from step to
// step and as the result. Exactly these are refused: text that Postgres cannot hold, numbers that
// JSON cannot hold, and states over the limit.
func FuzzTypedState(f *testing.F) {
	add := seeds(f)
	for _, text := range []string{"", "plain", "a\x00b", "\xff", "\xed\xa0\x80", "\ufffd", `"\u0000`, `\ud800`, "😀", "\u2028<&>", "\x7f\x1f"} {
		add(text, uint32(1), int64(1), 1.5, []byte(text))
	}
	add("2^53", uint32(1), int64(1)<<53+1, float64(1<<53), []byte{0})
	add("ends", uint32(1), int64(math.MinInt64), math.MaxFloat64, []byte{})
	add("smallest", uint32(1), int64(math.MaxInt64), math.SmallestNonzeroFloat64, []byte(nil))
	add("infinite", uint32(1), int64(0), math.Inf(-1), []byte(nil))
	add("no number", uint32(1), int64(0), math.NaN(), []byte(nil))
	add("minus zero", uint32(1), int64(0), math.Copysign(0, -1), []byte(nil))
	add("x", uint32(mostBytes/3-100), int64(0), 0.0, []byte(nil))
	add("x", uint32(mostBytes), int64(0), 0.0, []byte(nil))
	add("\x01", uint32(mostBytes/10), int64(0), 0.0, []byte(nil))

	machine := fsm.Declare[sundries, sundries]("sundries")
	type visit = fsm.Visit[sundries, sundries]
	r := &rig{}
	r.start(f, fsm.JSON{}, machine.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Next("end", v.State), nil }),
		fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(v.State), nil })))
	f.Fuzz(func(t *testing.T, text string, times uint32, whole int64, number float64, raw []byte) {
		text = strings.Repeat(text, int(min(times, uint32(2*mostBytes/max(1, len(text)))))) //nolint:gosec // a few million
		state := sundries{Text: text, Key: map[string]int{text: 1}, Whole: whole, Number: number, Bytes: raw, Any: text}
		x := r.begin(t)
		defer x.finish()
		id, err := x.insert(machine.New(state))
		broken := !utf8.ValidString(text) || strings.Contains(text, "\x00") || math.IsNaN(number) || math.IsInf(number, 0)
		if broken || errors.Is(err, engine.ErrTooLarge) {
			requireSpecError(t, err, "state")
			if !broken {
				encoded, err := json.Marshal(state)
				require.NoError(t, err)
				require.Greater(t, len(encoded)+400, mostBytes) // a float64 has up to 309 digits in Postgres, that many fewer as JSON
			}
			return
		}
		require.NoError(t, err)
		i := x.ended(id)
		require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
		got, err := machine.Wait(t.Context(), r.eng, id)
		require.NoError(t, err)
		if len(raw) == 0 {
			got.Bytes, state.Bytes = nil, nil // JSON tells null from "", which does not concern the engine
		}
		require.True(t, got.Number == number, "%v became %v", number, got.Number) // 0 == -0
		got.Number = state.Number
		require.Equal(t, state, got)
	})
}
