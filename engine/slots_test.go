package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// No more steps run at once than there are slots, and as many do, while the outcomes of others are
// on their way to the database. Each step runs once.
func TestAsManyStepsRunAsThereAreSlots(t *testing.T) {
	t.Parallel()
	const slots, all = 3, 300
	var mu sync.Mutex
	now, most, runs := 0, 0, map[string]int{}
	e := open(t, pgtest.Pool(t, pgtest.Migrated(t)), func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(func(_ context.Context, s string) (string, error) {
			mu.Lock()
			now++
			most = max(most, now)
			runs[s]++
			mu.Unlock()
			<-time.After(time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return s, nil
		})}
		c.Queues = map[string]engine.Queue{"default": {Concurrency: slots}}
	})
	var specs []fsm.Spec
	for i := range all {
		specs = append(specs, echoes.New(fmt.Sprint(i)))
	}
	_, err := e.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) == all
	}, time.Minute, time.Millisecond)
	require.NoError(t, e.Stop(t.Context()))
	require.Equal(t, slots, most)
	for s, n := range runs {
		require.Equal(t, 1, n, s)
	}
}
