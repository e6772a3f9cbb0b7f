package clients

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/calls"
)

// Histories that no order explains, by hand.
func TestBrokenHistories(t *testing.T) {
	t.Parallel()
	yes, no, unknown := calls.Answer{Told: calls.OK}, calls.Answer{Told: calls.Refused}, calls.Answer{Told: calls.Unknown}
	done := func(n int, bits uint64) calls.Answer {
		return calls.Answer{Told: calls.OK, N: n, Bits: bits, Ended: "done"}
	}
	inserted, second := calls.Call{Verb: calls.Insert, N: 1}, calls.Call{Verb: calls.Insert, N: 2}
	add, end, cancel := calls.Call{Verb: calls.Add, Bit: 1}, calls.Call{Verb: calls.Close}, calls.Call{Verb: calls.Cancel}
	get, wait := calls.Call{Verb: calls.Get}, calls.Call{Verb: calls.Wait, N: 1}
	for _, c := range []struct {
		name  string
		right bool
		calls []calls.Call
		told  []calls.Answer
	}{
		{"all is well", true, []calls.Call{inserted, add, end, wait}, []calls.Answer{yes, yes, yes, done(1, 1)}},
		{"a signal is lost", false, []calls.Call{inserted, add, end, wait}, []calls.Answer{yes, yes, yes, done(1, 0)}},
		{"a refused signal is taken", false, []calls.Call{inserted, end, add, wait}, []calls.Answer{yes, yes, no, done(1, 1)}},
		{"an unknown signal is taken", true, []calls.Call{inserted, add, end, wait}, []calls.Answer{yes, unknown, yes, done(1, 1)}},
		{"an unknown signal is not taken", true, []calls.Call{inserted, add, end, wait}, []calls.Answer{yes, unknown, yes, done(1, 0)}},
		{"two have a key", false, []calls.Call{inserted, second}, []calls.Answer{yes, yes}},
		{"a key is refused that nobody has", false, []calls.Call{inserted, cancel, second}, []calls.Answer{yes, yes, no}},
		{"a key is free once it is closed", true, []calls.Call{inserted, end, second, wait}, []calls.Answer{yes, yes, yes, done(1, 0)}},
		{"a cancelled one is done", false, []calls.Call{inserted, cancel, wait}, []calls.Answer{yes, yes, done(1, 0)}},
		{"an accepted signal has no target", false, []calls.Call{add}, []calls.Answer{yes}},
		{"a read goes back", false, []calls.Call{inserted, add, get, get},
			[]calls.Answer{yes, yes, {Told: calls.OK, N: 1, Bits: 1}, {Told: calls.OK, N: 1}}},
		{"a result changes", false, []calls.Call{inserted, end, add, wait, wait}, []calls.Answer{yes, yes, yes, done(1, 1), done(1, 0)}},
	} {
		history := make([]calls.Operation, len(c.calls))
		for i, in := range c.calls {
			history[i] = calls.Operation{Call: in, At: int64(2 * i), Answer: c.told[i], Until: int64(2*i + 1)}
		}
		want := map[bool]porcupine.CheckResult{true: porcupine.Ok, false: porcupine.Illegal}[c.right]
		require.Equal(t, want, Explains(history), c.name)
	}
}

// recorded is a record of two keys, by hand, as a soak writes it: instance 7 is inserted, takes two
// bits, one call after the other, is read after each, and done; instance 8 is cancelled.
func recorded() []calls.Operation {
	said := func(ended string, bits uint64) calls.Answer {
		return calls.Answer{Told: calls.OK, N: 1, ID: 7, Bits: bits, Ended: ended}
	}
	yes := calls.Answer{Told: calls.OK}
	history := []calls.Operation{
		{Call: calls.Call{Key: "a", Verb: calls.Insert, N: 1}, Answer: calls.Answer{Told: calls.OK, ID: 7}},
		{Call: calls.Call{Key: "a", Verb: calls.Add, Bit: 1}, Answer: yes},
		{Call: calls.Call{Key: "a", Verb: calls.Get}, Answer: said("", 1)},
		{Call: calls.Call{Key: "a", Verb: calls.Add, Bit: 2}, Answer: calls.Answer{Told: calls.Unknown}},
		{Call: calls.Call{Key: "a", Verb: calls.Get}, Answer: said("", 3)},
		{Call: calls.Call{Key: "a", Verb: calls.Insert, N: 3}, Answer: calls.Answer{Told: calls.Refused, ID: 7}},
		{Call: calls.Call{Key: "a", Verb: calls.Close}, Answer: yes},
		{Call: calls.Call{Key: "a", Verb: calls.Wait, N: 1}, Answer: said("done", 3)},
		{Call: calls.Call{Key: "b", Verb: calls.Insert, N: 2}, Answer: calls.Answer{Told: calls.OK, ID: 8}},
		{Call: calls.Call{Key: "b", Verb: calls.Cancel}, Answer: yes},
	}
	for i := range history {
		history[i].Client, history[i].At, history[i].Until = i%2, int64(10*i+1), int64(10*i+5)
		if history[i].Told == calls.Unknown {
			history[i].Until = math.MaxInt64
		}
	}
	return history
}

// text writes a history as a recorder does.
func text(t *testing.T, history []calls.Operation) string {
	t.Helper()
	var b bytes.Buffer
	for _, o := range history {
		require.NoError(t, json.NewEncoder(&b).Encode(o))
	}
	return b.String()
}

// TestARecordIsChecked corrupts a record as a broken engine would make it: each has to be refused,
// for its own reason.
func TestARecordIsChecked(t *testing.T) {
	t.Parallel()
	const noOrder = "no order explains what the clients of 1 keys were told: a"
	var told strings.Builder
	require.NoError(t, Check(strings.NewReader(text(t, recorded())), &told))
	require.Equal(t, "10 calls about 2 keys: insert ok ×2, insert refused ×1, add ok ×1, add unknown ×1, close ok ×1, cancel ok ×1, get ok ×2, wait ok ×1; "+
		"for 0 keys the search took too long\n", told.String())
	for name, c := range map[string]struct {
		corrupt func(h []calls.Operation) []calls.Operation
		says    string
	}{
		"a lost signal":                  {func(h []calls.Operation) []calls.Operation { h[7].Bits = 2; return h }, noOrder},
		"a get that sees an older state": {func(h []calls.Operation) []calls.Operation { h[4].Bits = 0; return h }, noOrder},
		"a get that sees no instance": {func(h []calls.Operation) []calls.Operation {
			h[4].Answer = calls.Answer{Told: calls.Refused}
			return h
		}, noOrder},
		"an insertion beside the occupant": {func(h []calls.Operation) []calls.Operation {
			h[5].Answer = calls.Answer{Told: calls.OK, ID: 9}
			return h
		}, noOrder},
		"an occupant from before": {func(h []calls.Operation) []calls.Operation {
			again, refused := h[0], h[5]
			again.At, again.Until, again.Call.N, again.ID = 1000, 1001, 4, 10
			refused.At, refused.Until, refused.Call.N = 1002, 1003, 5
			return append(h, again, refused)
		}, noOrder},
		"a cancelled one that is done": {func(h []calls.Operation) []calls.Operation { h[7].Ended = "cancelled"; return h }, noOrder},
		"one that failed":              {func(h []calls.Operation) []calls.Operation { h[7].Ended = "error: a bug"; return h }, noOrder},
		"an instance of two keys": {func(h []calls.Operation) []calls.Operation { h[8].ID = 7; return h },
			`instance 7 is number 1 of key "a", and number 2 of key "b"`},
		"an instance of two numbers": {func(h []calls.Operation) []calls.Operation { h[4].Answer.N = 2; return h },
			`instance 7 is number 1 of key "a", and number 2 of key "a"`},
		"an occupant of another key": {func(h []calls.Operation) []calls.Operation { h[5].ID = 8; return h },
			`key "a" was said to be occupied by instance 8, which has key "b"`},
		"an empty one": {func([]calls.Operation) []calls.Operation { return nil }, "the record shows nothing"},
		"one of no reads": {func(h []calls.Operation) []calls.Operation {
			return append(h[:2:2], h[3], h[5], h[6], h[7], h[8], h[9])
		}, "no call of get has succeeded"},
	} {
		var told strings.Builder
		require.ErrorContains(t, Check(strings.NewReader(text(t, c.corrupt(recorded()))), &told), c.says, name)
		if c.says == noOrder {
			require.Contains(t, told.String(), "{Told:ok N:1 ID:7", "%s: the calls are shown", name)
		}
	}
}

// TestTheFormatOfARecord keeps lines as the soak writes them readable, and refuses others.
func TestTheFormatOfARecord(t *testing.T) {
	t.Parallel()
	const line = `{"client":3,"at":12,"until":9223372036854775807,"key":"purse 0.1","verb":"add","bit":4,"told":"unknown"}` + "\n"
	history, err := calls.Read(strings.NewReader(line))
	require.NoError(t, err)
	require.Equal(t, []calls.Operation{{Client: 3, At: 12, Until: math.MaxInt64, Call: calls.Call{Key: "purse 0.1", Verb: calls.Add, Bit: 4},
		Answer: calls.Answer{Told: calls.Unknown}}}, history)
	require.Equal(t, line, text(t, history))

	const read = `{"client":0,"at":1,"until":2,"key":"k","verb":"wait","n":1,"told":"ok","told_n":1,"id":5,"bits":3,"ended":"done"}` + "\n"
	history, err = calls.Read(strings.NewReader(read))
	require.NoError(t, err)
	require.Equal(t, calls.Answer{Told: calls.OK, N: 1, ID: fsm.ID(5), Bits: 3, Ended: "done"}, history[0].Answer)
	require.Equal(t, read, text(t, history))

	for wrong, says := range map[string]string{
		strings.TrimSuffix(line, "\n"):                                      "cut off",
		line + line[:40]:                                                    "line 2",
		strings.Replace(line, `"add"`, `"take"`, 1):                         `verb "take"`,
		strings.Replace(line, `"unknown"`, `"maybe"`, 1):                    `told "maybe"`,
		strings.Replace(line, `"bit":4`, `"bit":0`, 1):                      "add of bit 0",
		strings.Replace(line, `"bit":4`, `"bits":4,"n":1`, 1):               "add of number 1",
		strings.Replace(line, `"bit"`, `"sum"`, 1):                          `unknown field "sum"`,
		strings.Replace(line, `"purse 0.1"`, `""`, 1):                       "without a key",
		strings.Replace(line, "9223372036854775807", "20", 1):               "from 12 to 20, told unknown",
		strings.Replace(read, `"until":2`, `"until":0`, 1):                  "from 1 to 0",
		strings.Replace(read, `"n":1,`, ``, 1):                              "wait of number 0",
		strings.Replace(read, `"at":1,`, ``, 1):                             "from 0 to 2",
		strings.NewReplacer(`"add"`, `"get"`, `"bit":4,`, ``).Replace(line): "get without an answer",
	} {
		_, err := calls.Read(strings.NewReader(wrong))
		require.ErrorContains(t, err, says, wrong)
	}
}
