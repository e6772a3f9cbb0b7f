package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// The statement that every process sends each second, and those that fire a schedule, use their
// indexes on a table of twenty thousand schedules, although they were planned on an empty one.
func TestPlansOfSchedulesHold(t *testing.T) {
	b := newBench(t)
	e := b.explained("planned on an empty table")
	look := func() []store.DueSchedule {
		due, err := e.DueSchedules(t.Context(), time.Time{}, time.Second, 1000)
		require.NoError(t, err)
		return due
	}
	fire := func(name string) []store.Inserted {
		fired, err := e.Fire(t.Context(), name, time.Time{}, func(due store.Due) (store.Firing, error) {
			spec := newSpecs(1, false)[0]
			spec.Key, spec.Scope = name+due.Next.String(), step.ScopeAll
			return store.Firing{Specs: []*step.Spec{spec}, Next: due.Now.Add(time.Hour), Last: due.Next}, nil
		})
		require.NoError(t, err)
		return fired
	}
	look()
	require.Empty(t, fire("5"))
	b.exec(`INSERT INTO gendurable.schedules (name, spec, expression, next_at)
		SELECT n, '{"machine": "m", "version": 1, "step": "s", "queue": "q", "state": {}}', '@hourly', now() + (n - 10) * interval '1 minute'
		FROM generate_series(1, 20000) n`)
	e.cost()
	due := look()
	require.Len(t, due, 10)
	require.Equal(t, "1", due[0].Name)
	require.Greater(t, -due[0].In, 8*time.Minute)
	c := e.cost()
	require.Contains(t, c.indexes, "schedules_due")
	require.Less(t, c.buffers, 40)
	for n := range 2 {
		require.Len(t, fire(fmt.Sprint(n+5)), 1)
		c = e.cost()
		require.Contains(t, c.indexes, "schedules_pkey")
		require.Less(t, c.buffers, 150)
		require.Empty(t, c.scanned)
	}
	require.Empty(t, fire("5"), "not due any more")
	require.Len(t, look(), 8)
}
