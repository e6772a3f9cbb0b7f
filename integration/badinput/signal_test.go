package badinput

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var listener = fsm.Declare[json.RawMessage, json.RawMessage]("listener")

// FuzzSignal tests that a signal of any name, dedup key and address is refused with a typed error,
// or wakes the instance that awaits that name, once. Exactly the names that can be awaited can be
// sent. No address reaches another instance.
func FuzzSignal(f *testing.F) {
	add := seeds(f)
	for _, name := range badNames {
		add(name, "", false, "x", int64(0))
		add("letter", name, true, "x", int64(1))
		add("letter", "", false, name, int64(-1))
		add(name, name, true, name, int64(1)<<62)
	}
	r := &rig{}
	r.start(f, verbatim{}, listener.Define(
		fsm.Step("start", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			return v.Await("heard", v.State, fsm.DeclareSignal[json.RawMessage](p.bad.names[0])), nil
		})),
		fsm.Step("heard", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			for _, s := range v.Awaited() {
				p.see(s.Name+"\n"+s.DedupKey, s.Payload)
			}
			p.open()
			return v.Done(v.State), nil
		}))))
	f.Fuzz(func(t *testing.T, name, dedup string, deduped bool, address string, number int64) {
		x := r.begin(t)
		defer x.finish()
		message := fsm.DeclareSignal[json.RawMessage](name).With(json.RawMessage(`{"n":1}`))
		if deduped {
			message = message.DedupKey(dedup)
		}
		bad := badName(name) || deduped && badName(dedup)
		x.reachNobody(message, bad, fsm.Key("nobody: "+address), fsm.ID(number|1<<40), fsm.ID(-max(number, -number)))

		key, p := x.put(input{names: []string{name}})
		id, err := x.insert(listener.New(json.RawMessage("{}")).Key(key))
		require.NoError(t, err)
		if badName(name) {
			i := x.ended(id)
			require.Equal(t, fsm.FailureError, i.Failure)
			require.Contains(t, i.LastError, "outcome: signals[0]: ")
			return
		}
		if bad {
			return
		}
		for again := range 2 {
			d, err := r.eng.Signal(t.Context(), id, message)
			if again == 1 && errors.Is(err, engine.ErrNoTarget) {
				break // it has ended already
			}
			require.NoError(t, err)
			require.Equal(t, id, d.To)
			require.Equal(t, again == 1 && deduped, d.Duplicate)
		}
		i := x.ended(id)
		require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
		seen := p.seen()
		require.NotEmpty(t, seen)
		if deduped {
			require.Len(t, seen, 1)
		}
		want := name + "\n"
		if deduped {
			want += dedup
		}
		require.Equal(t, want, seen[0].where)
		require.JSONEq(t, `{"n":1}`, string(seen[0].raw))
	})
}

// reachNobody sends to addresses that no instance has: a delivery would be seen in the witness's
// inbox.
func (x *trial) reachNobody(m fsm.Message, bad bool, targets ...fsm.Target) {
	x.t.Helper()
	for _, to := range targets {
		_, err := x.eng.Signal(x.t.Context(), to, m)
		if wrong, ok := errors.AsType[*fsm.MessageError](err); ok {
			require.True(x.t, bad, "%v", err)
			require.Contains(x.t, []string{"name", "dedup_key"}, wrong.Field)
			continue
		}
		require.ErrorIs(x.t, err, engine.ErrNoTarget, "%.100v", to)
		require.False(x.t, bad, "not refused: %.100q", m.Name())
		_, err = x.eng.Get(x.t.Context(), to)
		require.ErrorIs(x.t, err, engine.ErrNotFound, "%.100v", to)
	}
	var signals int
	require.NoError(x.t, x.pool.QueryRow(x.t.Context(), `SELECT count(*) FROM gendurable.signals`).Scan(&signals))
	require.Zero(x.t, signals, "somebody got it")
}
