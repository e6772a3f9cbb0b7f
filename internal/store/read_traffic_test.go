package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// Waiting instances are counted no further than the limit, in whichever lane they wait;
// TestPlansHold holds the plan.
func TestTrafficIsBounded(t *testing.T) {
	const limit, rows = 20, 1000
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, partition_key, pick_lane, gate, eligible_at)
		SELECT 'order', 'start', queue, key, lane, CASE lane WHEN 3 THEN 'g/' || n % 7 END, now() - n * interval '1 s'
		FROM (VALUES ('aside', NULL, 2), ('hot', 'k', 1), ('ready', NULL, 0), ('lined', NULL, 3)) v (queue, key, lane), generate_series(1, $1::int) n`, rows)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, eligible_at) VALUES ('order', 'start', now() + interval '1 h')`)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, locked_by, lease_expires_at)
		SELECT 'order', 'start', 'busy', 'executing', 'w', now() + interval '1 h' FROM generate_series(1, 3)`)
	seen, err := b.Traffic(t.Context(), limit)
	require.NoError(t, err)
	require.False(t, seen.At.IsZero())
	require.Equal(t, []store.Executing{{Queue: "busy", Worker: "w", Count: 3}}, seen.Executing)
	slices.SortFunc(seen.Waiting, func(a, b store.Waiting) int { return strings.Compare(a.Queue, b.Queue) })
	require.Len(t, seen.Waiting, 5)
	for n, want := range []store.Waiting{
		{Queue: "aside", Due: limit, AtLeast: true}, {Queue: "default", Delayed: 1}, {Queue: "hot", Due: limit, AtLeast: true},
		{Queue: "lined", InLine: limit, AtLeast: true}, {Queue: "ready", Due: limit, AtLeast: true},
	} {
		require.Equal(t, want.Due > 0, seen.Waiting[n].OldestDue != nil)
		seen.Waiting[n].OldestDue = nil
		require.Equal(t, want, seen.Waiting[n])
	}
}
