package badinput

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// FuzzInsertRules inserts a spec with any policy and any window, twice. It is refused with the name
// of the field, or the second insert does what the rule says.
func FuzzInsertRules(f *testing.F) {
	add := seeds(f)
	const century = 36_525 * 24 * time.Hour
	for _, name := range badNames {
		for kind := range uint8(4) {
			add(name, kind, int64(time.Hour), int64(0), uint8(0))
		}
	}
	for _, d := range []time.Duration{0, 1, -1, math.MinInt64, math.MaxInt64, time.Millisecond, century, century + 1} {
		for kind := range uint8(4) {
			add("key", kind, int64(d), int64(0), uint8(0))
			add("key", kind, int64(time.Millisecond), int64(d), kind)
		}
	}
	pool := pgtest.Pool(f, pgtest.Migrated(f))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(f, err)
	declared := fsm.Declare[json.RawMessage, json.RawMessage]("rules")
	f.Fuzz(func(t *testing.T, key string, kind uint8, length, most int64, conflict uint8) {
		_, err := pool.Exec(t.Context(), `TRUNCATE gendurable.gen_durable, gendurable.windows, gendurable.signals`)
		require.NoError(t, err)
		spec := declared.New(json.RawMessage("{}"))
		span, bound := time.Duration(length), time.Duration(most)
		wrong := badName(key) || span < time.Millisecond || span > century
		switch kind % 4 {
		case 0:
			spec, wrong = spec.Key("k").OnConflict(fsm.Conflict(conflict)), fsm.Conflict(conflict) > fsm.ConflictNewest
		case 1:
			spec = spec.Throttle(fsm.Key(key), span)
		case 2:
			spec = spec.OncePer(fsm.Key(key), span)
		case 3:
			spec = spec.Debounce(fsm.Key(key), span, bound)
			wrong = wrong || bound != 0 && (bound < span || bound > century)
		}
		done, err := eng.InsertMany(t.Context(), []fsm.Spec{spec, spec})
		if wrong {
			requireSpecError(t, err, "conflict", "window")
			return
		}
		require.NoError(t, err)
		require.Equal(t, engine.Inserted{ID: done[0].ID}, done[0])
		switch o := spec.Options(); {
		case o.Window.Kind == fsm.WindowDebounce || o.Conflict == fsm.ConflictReplace:
			require.Equal(t, engine.Inserted{ID: done[0].ID, Replaced: true}, done[1])
		case o.Conflict == fsm.ConflictNewest:
			require.Equal(t, engine.Inserted{ID: done[1].ID}, done[1])
			require.NotEqual(t, done[0].ID, done[1].ID)
		case o.Window.Kind == "":
			require.Equal(t, engine.Inserted{ID: done[0].ID, Duplicate: true}, done[1])
		case o.Window.Kind == fsm.WindowOnce && !done[1].Duplicate: // its period ended in between
		case span > time.Minute: // a shorter one may have closed in between
			require.Equal(t, engine.Inserted{ID: done[0].ID, Duplicate: true, Throttled: true, Until: done[1].Until}, done[1])
		}
	})
}
