package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// claimsOf counts the instances that an engine inserts as claimed, or whose signals claim them,
// through its hooks, and its other claims.
func claimsOf(c *engine.Config) (inserted, claimed *atomic.Int64) {
	inserted, claimed = &atomic.Int64{}, &atomic.Int64{}
	c.Hooks = append(c.Hooks, engine.Hooks{Pick: func(_ context.Context, e engine.PickEvent) {
		if e.Inserted || e.Signalled {
			inserted.Add(int64(e.Got))
		} else {
			claimed.Add(int64(e.Got))
		}
	}})
	return inserted, claimed
}

// mostly requires that n instances have been claimed since the counters were read, and most of them
// at once. The scheduler withdraws its offer of free slots for a moment whenever it has something
// to do, so that one comes by a claim now and then.
func mostly(t *testing.T, n int64, atOnce, claimed *atomic.Int64, since [2]int64) {
	t.Helper()
	eventually(t, func() bool { return atOnce.Load()-since[0]+claimed.Load()-since[1] == n }, "claims", n)
	require.Greater(t, atOnce.Load()-since[0], n/2)
}

// settled inserts until an insert is claimed at once: the engine's first claims have found nothing.
func settled(t *testing.T, eng *engine.Engine, inserted *atomic.Int64, spec func() fsm.Spec) {
	t.Helper()
	eventually(t, func() bool {
		ended(t, eng, insert(t, eng, spec()))
		return inserted.Load() > 0
	}, "no insert was claimed at once")
}

// A working engine that is idle runs what it inserts without a claim, and finds the state that a
// claim would have found. Instances that it inserts in a host's transaction, and those with a
// partition key or due later, are claimed as ever.
func TestAnIdleEngineInsertsAsClaimed(t *testing.T) {
	t.Parallel()
	type raw = map[string]any
	m := fsm.Declare[raw, string]("m")
	c := config(t, m.Job(func(_ context.Context, s raw) (string, error) { return fmt.Sprint(s), nil }))
	c.Queues["default"] = engine.Queue{PollMin: time.Hour, PollMax: time.Hour}
	inserted, claimed := claimsOf(&c)
	eng := start(t, c)
	settled(t, eng, inserted, func() fsm.Spec { return m.New(raw{}) })
	since := [2]int64{inserted.Load(), claimed.Load()}
	for n := range 20 {
		spec := m.New(raw{"b": n, "a": []int{1}})
		if n%2 == 0 {
			spec = spec.Key(fsm.Key(fmt.Sprint("key ", n)))
		}
		id := insert(t, eng, spec)
		require.Equal(t, fmt.Sprint(raw{"a": []int{1}, "b": n}), result(t, eng, m, id))
		require.Zero(t, get(t, eng, id).Attempt)
	}
	mostly(t, 20, inserted, claimed, since)
	many, err := eng.InsertMany(t.Context(), []fsm.Spec{m.New(raw{}), m.New(raw{}).Key("k"), m.New(raw{}).Key("k")})
	require.NoError(t, err)
	allDone(t, eng, many[0].ID, many[1].ID)
	require.True(t, many[2].Duplicate)
	mostly(t, 22, inserted, claimed, since)

	before := inserted.Load()
	for _, spec := range []fsm.Spec{m.New(raw{}).PartitionKey("p"), m.New(raw{}).After(time.Millisecond)} {
		ended(t, eng, insert(t, eng, spec))
	}
	tx, err := c.Pool.Begin(t.Context())
	require.NoError(t, err)
	host := eng.WithPgx(tx)
	id, err := host.Insert(t.Context(), m.New(raw{}))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	host.Nudge()
	ended(t, eng, id)
	mostly(t, 25, inserted, claimed, since)
	require.Equal(t, before, inserted.Load())
}

// The connection of an insert that claims breaks at its COMMIT. If Postgres had committed, the
// instance runs at once, and counts no crash; without a key the caller is told that it is unknown.
func TestAnInsertAsClaimedWhoseCommitIsCutOff(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[string, string]("m")
	for _, key := range []string{"", "k"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("key %q, after %v", key, after), func(t *testing.T) {
				t.Parallel()
				database := pgtest.Migrated(t)
				p, url := newProxy(t, database)
				var runs atomic.Int64
				marker := marked("state")
				c := configOn(t, url, m.Job(func(_ context.Context, s string) (string, error) {
					if s == marker {
						runs.Add(1)
					}
					return "", nil
				}))
				c.Lease = time.Hour
				inserted, _ := claimsOf(&c)
				eng := start(t, c)
				settled(t, eng, inserted, func() fsm.Spec { return m.New("") })
				direct := client(t, pgtest.Pool(t, database))
				cutting := p.cut(marker, after)
				spec := m.New(marker)
				if key != "" {
					spec = spec.Key(fsm.Key(key))
				}
				id, err := eng.Insert(t.Context(), spec)
				cutting.happened(t)
				if key != "" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, engine.ErrUnknown)
					pool := pgtest.Pool(t, database)
					id = query[fsm.ID](t, pool, `SELECT coalesce(max(id), 0) FROM gendurable.gen_durable WHERE state = to_jsonb($1::text)`, marker)
					require.Equal(t, after, id != 0)
					if !after {
						return
					}
				}
				i := ended(t, direct, id)
				require.Equal(t, fsm.StatusDone, i.Status)
				require.Zero(t, i.Crashes)
				require.EqualValues(t, 1, runs.Load())
			})
		}
	}
}
