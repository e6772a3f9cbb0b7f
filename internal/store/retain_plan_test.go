package store_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// keptMeasures measure the kept rows: signals for free keys, and instances for longer than others.
// Beside each of them as many signals are kept, and as many instances by their own retention, as
// there are runnable rows.
var keptMeasures = []measured{
	{"keep a signal", 1, 90, "gen_durable_correlation kept_signals_key", func(e explained, _ any) int {
		d, err := e.Keep(e.t.Context(), byKey("kept nowhere"), toKeep("go", newMark()), 100)
		require.NoError(e.t, err)
		require.True(e.t, d.Kept)
		return 1
	}, func(e explained) any {
		e.exec(`DELETE FROM gendurable.kept_signals WHERE key = 'kept nowhere'`)
		return nil
	}},
	{"keep a signal for a taken key", 1, 80, "gen_durable_correlation", func(e explained, to any) int {
		_, err := e.Keep(e.t.Context(), byKey(fmt.Sprint("address ", to.([]int64)[2])), toKeep("go", ""), 100)
		require.NoError(e.t, err)
		return 1
	}, parkedOnes},
	{"insert that takes kept signals", planRows, 30, "kept_signals_key gen_durable_correlation", func(e explained, specs any) int {
		require.True(e.t, e.Keeping())
		in := e.insertSpecs(specs.([]*step.Spec))
		taken, _, err := e.Inbox(e.t.Context(), in[0].ID, 0)
		require.NoError(e.t, err)
		require.Len(e.t, taken, 1)
		return len(in)
	}, func(e explained) any {
		list := newSpecs(planRows, true)
		keys := make([]string, len(list))
		for i := range list {
			list[i].Key = newMark()
			keys[i] = list[i].Key
		}
		e.exec(`INSERT INTO gendurable.kept_signals (key, name, expires_at) SELECT unnest($1::text[]), 'taken', now() + interval '1 h'`, keys)
		return list
	}},
	{"look for occupants of kept signals", 0, 4, "kept_signals_key gen_durable_correlation", func(e explained, kept any) int {
		for last := ""; ; {
			done, err := e.HandOver(e.t.Context(), last)
			require.NoError(e.t, err)
			if last = done.Last; last == "" {
				break
			}
		}
		return kept.(int) // keys: each is looked up
	}, func(e explained) any { return e.kept() }},
	{"prune: own retentions, and what has expired", 2 * planRows, 25, "gen_durable_retained kept_signals_expiry gen_durable_pkey", func(e explained, _ any) int {
		const day = 24 * time.Hour // none of what is kept gets that old while the statements are measured
		got, err := e.Prune(e.t.Context(), store.PruneParams{Done: day, Failed: day, Tombstones: 100, Limit: planRows})
		require.NoError(e.t, err)
		return got.Instances + got.Expired
	}, func(e explained) any {
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, retain)
			SELECT 'm', 's', 'done', now() - interval '1 s', '{1,-1,-1}' FROM generate_series(1, $1::int)`, planRows)
		e.exec(`INSERT INTO gendurable.kept_signals (key, name, expires_at) SELECT 'expired ' || n, 'go', now() - interval '1 s' FROM generate_series(1, $1::int) n`, planRows)
		return nil
	}},
}

// keeps fills the tables with n kept rows.
func (b bench) keeps(n int) {
	b.t.Helper()
	b.exec(`INSERT INTO gendurable.kept_signals (key, name, dedup_key, expires_at)
		SELECT 'kept ' || n, 'go', 'd', now() + interval '1 day' + n * interval '1 ms' FROM generate_series(1, $1::int) n`, n)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, retain)
		SELECT 'm', 's', 'done', now() - n * interval '1 ms', '{31536000000000,-1,-1}' FROM generate_series(1, $1::int) n`, n)
}
