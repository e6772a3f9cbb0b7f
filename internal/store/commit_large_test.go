package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// ofManyBytes is held by tests that have hundreds of megabytes in memory: one at a time.
var ofManyBytes sync.Mutex

func manyBytes(t *testing.T) {
	t.Helper()
	ofManyBytes.Lock()
	t.Cleanup(ofManyBytes.Unlock)
}

// large makes children of some mebibytes each.
func large(specs []step.Spec, mebibytes int) []step.Spec {
	text := json.RawMessage(`"` + strings.Repeat("x", mebibytes<<20) + `"`)
	for i := range specs {
		specs[i].State = text
	}
	return specs
}

// The children of one outcome are inserted in as many messages as they need, in one transaction: in
// order, with the first of equal keys, and all or none.
func TestChildrenOfManyBytes(t *testing.T) {
	b := newBench(t)
	manyBytes(t)
	wired, w := b.wired()
	for _, keyed := range []bool{false, true} {
		c := b.executing(nil)
		specs := large(kids(9), 5)
		var want []string
		for i := range specs {
			if keyed && i%2 == 0 { // in three messages: a, b; c, a; d
				specs[i].Key = []string{"a", "b", "c", "a", "d"}[i/2]
			}
			if !keyed || i != 6 {
				want = append(want, uuid.UUID(specs[i].UID).String())
			}
		}
		meet := kids(2)
		if keyed {
			meet[0].Key, meet[1].Key = "x", "x"
		}
		meet[0].State, meet[1].State = specs[0].State, specs[0].State
		_, err := wired.Commit(t.Context(), me, newMark(), []store.Entry{spawnOf(b.executing(nil), meet)}, 0)
		require.NoError(t, err, "it meets the statements")
		b.exec(`DELETE FROM gendurable.gen_durable WHERE parent_id IS NOT NULL`)
		before := w.count()
		got, err := wired.Commit(t.Context(), me, newMark(), []store.Entry{spawnOf(c, specs)}, 0)
		require.NoError(t, err)
		require.True(t, got.Applied[c.ID])
		require.Equal(t, map[bool]int{false: 4, true: 5}[keyed], w.count()-before, "three messages, COMMIT, and what was dropped")
		require.Equal(t, want, b.column(`SELECT uid::text FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY id`, c.ID))
		require.Equal(t, len(want), b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, c.ID))
		if keyed {
			require.Equal(t, 1, b.number(`SELECT jsonb_array_length(dropped) FROM gendurable.gen_durable WHERE id = $1`, c.ID))
		}
		b.exec(`DELETE FROM gendurable.gen_durable WHERE parent_id IS NOT NULL`)
	}

	stale := b.executing(nil)
	stale.Token--
	_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{spawnOf(stale, large(kids(9), 5))}, 0)
	require.NoError(t, err)
	bad := large(kids(9), 5)
	bad[8].State = json.RawMessage(`"\u0000"`)
	_, err = b.Commit(t.Context(), me, newMark(), []store.Entry{spawnOf(b.executing(nil), bad)}, 0)
	require.Equal(t, store.FaultData, store.Classify(err), err)
	require.False(t, store.Unknown(err))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE parent_id IS NOT NULL`))
}

// A message that cannot be sent, and a value that Postgres cannot hold in memory, are faults of the
// data. If they were retried, they would fail for ever, and keep others from being committed.
func TestWhatIsTooLargeIsAFaultOfTheData(t *testing.T) {
	require.Equal(t, store.FaultData, store.Classify(fmt.Errorf("commit: %w", entpgx.ErrTooLarge)))
	b := newBench(t)
	manyBytes(t)
	c := b.executing(nil)
	many := json.RawMessage("[1]")
	if !tier.Long() { // Postgres takes more than a gibibyte to find out
		b.refuse(`RAISE 'total size of jsonb array elements exceeds the maximum' USING ERRCODE = 'program_limit_exceeded'`, c.ID)
	} else {
		many = json.RawMessage("[" + strings.Repeat("1,", 17<<20) + "1]")
	}
	_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: c, Commit: &step.Commit{Kind: step.Next, Step: "s", State: many}}}, 0)
	require.Equal(t, store.FaultData, store.Classify(err), fmt.Sprint(err))
	require.Equal(t, "executing", b.status(c.ID))
}

// The same holds for the specs of one insert, here and in a host's transaction.
func TestInsertOfManyBytes(t *testing.T) {
	b := newBench(t)
	manyBytes(t)
	wired, w := b.wired()
	state := json.RawMessage(`"` + strings.Repeat("x", 5<<20) + `"`)
	for _, keyed := range []bool{false, true} {
		list := newSpecs(7, false)
		for i, x := range list {
			x.State = state
			if keyed {
				x.Key = fmt.Sprint("key ", i%5)
			}
		}
		check := func(got []store.Inserted, err error) {
			t.Helper()
			require.NoError(t, err)
			for i := range got {
				require.Equal(t, keyed && i >= 5, got[i].Duplicate)
				if i >= 5 && keyed {
					require.Equal(t, got[i-5].ID, got[i].ID)
				} else if i > 0 {
					require.Greater(t, got[i].ID, got[i-1].ID, "in input order")
				}
			}
		}
		before := w.count()
		check(wired.Insert(t.Context(), list))
		require.GreaterOrEqual(t, w.count()-before, 4, "three messages and COMMIT")
		b.exec(`DELETE FROM gendurable.gen_durable`)
		tx := b.begin()
		got, _, err := b.Within(store.Pgx(tx)).Insert(t.Context(), list, store.By{})
		check(got, err)
		require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
		require.NoError(t, tx.Rollback(t.Context()))
	}
}
