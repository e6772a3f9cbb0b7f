package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// recordedOutcomes makes the history keep outcomes that prepare returns.
func recordedOutcomes(prepare func(explained) any) func(explained) any {
	return func(e explained) any {
		entries := prepare(e).([]store.Entry)
		for i := range entries {
			entries[i].Record = &store.Record{}
		}
		return entries
	}
}

// A history that no machine asks for sends nothing: whether some machine is recorded is read by the
// statements of every poll and every start. Nor does a recorded outcome send a statement more.
func TestAHistoryAddsNoStatement(t *testing.T) {
	b := newBench(t)
	wired, w := b.wired()
	sends := func(want int, do func() error) {
		t.Helper()
		require.Equal(t, want, w.statements(func() { require.NoError(t, do()) }))
	}
	const around = 3 // begin, settings, COMMIT
	for _, recorded := range [][]string{nil, {"m", "n"}} {
		if recorded != nil {
			require.NoError(t, b.SetRecorded(t.Context(), recorded, nil))
		}
		sends(around+len([]string{"poll", "orders", "next schedule"}), func() error {
			_, err := wired.Poll(t.Context(), []string{"default"}, []string{"m/1"}, nil)
			return err
		})
		sends(around+len([]string{"store definitions"}), func() error {
			noted, err := wired.StoreDefinitions(t.Context(), []store.Definition{{Machine: "m", Version: 1, Graph: `{}`}})
			require.ElementsMatch(t, recorded, noted)
			return err
		})
		for kept, statements := range map[bool][]string{true: {"commit kept", "consume"}, false: {"commit", "consume", "promote"}} {
			b.exec(`DELETE FROM gendurable.gen_durable`)
			entries := b.entries(3, kept)
			for i := range entries {
				if recorded != nil {
					entries[i].Record = &store.Record{}
				}
			}
			sends(around+len(statements), func() error { return commitAll(wired, entries) })
		}
		b.exec(`DELETE FROM gendurable.gen_durable`)
		b.expired(2, false)
		sends(around+len([]string{"reap"}), func() error {
			_, err := wired.Reap(t.Context(), newMark(), store.CrashLimits{}, 10)
			return err
		})
	}
	require.Equal(t, 8, b.number(`SELECT count(*) FROM gendurable.history`))
}

// verbsRecorded fills the audit with many verbs of a bulk, and few of others. The statistics know
// the bulk alone, as they do if another operator comes after the last ANALYZE: by them, each
// criterion finds every row.
func verbsRecorded(e explained) any {
	n := tier.Pick(10_000, 20_000)
	if e.number(`SELECT count(*) FROM gendurable.history WHERE kind IN ('admin.cancel', 'admin.rewind')`) == n {
		return nil // nothing changes them
	}
	e.exec(`DELETE FROM gendurable.history`)
	e.exec(`INSERT INTO gendurable.history (at, instance, kind, fsm, step, actor, subject)
		SELECT now() - n * interval '1 ms', n % 100, 'admin.cancel', 'm', 's', 'bulk', 'gate 0' FROM generate_series(1, $1::int) n`, n)
	e.exec(`ANALYZE gendurable.history_rest`)
	e.exec(`UPDATE gendurable.history SET kind = 'admin.rewind' WHERE instance = 7`)
	e.exec(`UPDATE gendurable.history SET actor = 'ada' WHERE instance = 3`)
	e.exec(`UPDATE gendurable.history SET subject = 'gate 1' WHERE instance = 5`)
	e.exec(`INSERT INTO gendurable.history (at, instance, kind) SELECT now() - n * interval '1 ms', n, 'next' FROM generate_series(1, $1::int) n`, n)
	return nil
}

func verbsMeasured(f store.AuditFilter) func(explained, any) int {
	return func(e explained, _ any) int {
		f.Limit = planRows
		list, err := e.Verbs(e.t.Context(), f)
		require.NoError(e.t, err)
		return len(list)
	}
}
