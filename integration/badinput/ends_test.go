package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// FuzzRetention inserts a spec with any retention, and keeps a message for any time. Each is
// refused with the name of the field, or stored as it is and handed over.
func FuzzRetention(f *testing.F) {
	add := seeds(f)
	const century = 36_525 * 24 * time.Hour
	for _, d := range []time.Duration{0, 1, -1, fsm.RetainNone, math.MinInt64, math.MaxInt64, time.Microsecond, century, century + 1} {
		add(int64(d), int64(0), int64(0), int64(time.Hour))
		add(int64(0), int64(d), int64(time.Hour), int64(time.Hour))
		add(int64(time.Hour), int64(0), int64(d), int64(d))
	}
	pool := pgtest.Pool(f, pgtest.Migrated(f))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(f, err)
	declared := fsm.Declare[json.RawMessage, json.RawMessage]("retained")
	letter := fsm.DeclareSignal[json.RawMessage]("letter").With(json.RawMessage(`{"n":1}`))
	good := func(d int64) bool {
		return time.Duration(d) == fsm.RetainNone || d >= 0 && time.Duration(d) <= century
	}
	f.Fuzz(func(t *testing.T, done, failed, cancelled, keep int64) {
		_, err := pool.Exec(t.Context(), `TRUNCATE gendurable.gen_durable, gendurable.kept_signals, gendurable.signals`)
		require.NoError(t, err)
		d, err := eng.Signal(t.Context(), fsm.Key("k"), letter.KeepFor(time.Duration(keep)))
		kept := keep > 0 && time.Duration(keep) <= century
		if kept {
			require.NoError(t, err)
			require.Equal(t, engine.Delivery{Kept: true}, d)
		} else {
			require.ErrorAs(t, err, new(*fsm.MessageError))
		}
		spec := declared.New(json.RawMessage("{}")).Key("k").
			Retain(fsm.Retention{Done: time.Duration(done), Failed: time.Duration(failed), Cancelled: time.Duration(cancelled)})
		id, err := eng.Insert(t.Context(), spec)
		if !good(done) || !good(failed) || !good(cancelled) {
			requireSpecError(t, err, "retain.done", "retain.failed", "retain.cancelled")
			return
		}
		require.NoError(t, err)
		stored, err := eng.Ent().Instance.Get(t.Context(), id)
		require.NoError(t, err)
		if done == 0 && failed == 0 && cancelled == 0 {
			require.Nil(t, stored.Retain)
		} else {
			require.Len(t, stored.Retain, 3)
		}
		n, err := eng.Ent().Signal.Query().Count(t.Context())
		require.NoError(t, err)
		if kept && time.Duration(keep) > time.Minute { // a shorter time may be over
			require.Equal(t, 1, n)
		}
	})
}

// FuzzPublish publishes any text. It is refused with an error of the step's, or read back equal.
func FuzzPublish(f *testing.F) {
	add := seeds(f)
	for _, text := range badNames {
		add(text)
	}
	publisher := fsm.Declare[json.RawMessage, json.RawMessage]("publisher")
	r := &rig{}
	texts := make(chan string, 1)
	r.start(f, verbatim{}, publisher.Define(fsm.Step("start",
		func(ctx context.Context, v *fsm.Visit[json.RawMessage, json.RawMessage]) (fsm.Outcome, error) {
			if err := v.Publish(ctx, json.RawMessage(<-texts)); err != nil {
				if errors.Is(err, fsm.ErrLeaseLost) {
					return nil, err
				}
				return v.Done(json.RawMessage(`"refused"`)), nil
			}
			return v.Done(json.RawMessage(`"published"`)), nil
		})))
	f.Fuzz(func(t *testing.T, text string) {
		for _, progress := range []string{text, quoted(text)} {
			x := r.begin(t)
			texts <- progress
			id, err := x.insert(publisher.New(json.RawMessage("{}")))
			require.NoError(t, err)
			i := x.ended(id)
			require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
			if string(i.Result) == `"refused"` {
				require.Empty(t, i.Progress)
			} else {
				require.JSONEq(t, progress, string(i.Progress))
			}
			x.finish()
		}
	})
}

// quoted returns a text as JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(out)
}
