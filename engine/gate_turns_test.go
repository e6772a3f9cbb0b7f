package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// Two processes serve a queue each, and one gate with one place bounds both. More urgent
// instances begin while the other queue is in the middle of its work, although its process claims
// again whenever it frees the place. A queue that no process serves holds up none of them.
func TestTwoQueuesTakeTurnsAtOneGate(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.Pool(t, pgtest.Migrated(t)), within(t)
	admin := open(t, pool)
	_, err := admin.Admin().SetGate(ctx, engine.Gate{Name: "calls", Machine: "charge", Places: 1})
	require.NoError(t, err)
	bulk := tier.Pick(150, 1000)
	var begun, in atomic.Int64
	machine := charges.Job(func(ctx context.Context, name string) (string, error) {
		if n := in.Add(1); n > 1 {
			t.Errorf("%d execute at a time", n)
		}
		pace.Sleep(ctx, 20*time.Millisecond)
		in.Add(-1)
		if name == "bulk" {
			begun.Add(1)
		}
		return "", nil
	})
	specs := func(n int, queue string) (list []fsm.Spec) {
		for range n {
			list = append(list, charges.New("bulk").Queue(queue))
		}
		return list
	}
	_, err = admin.InsertMany(ctx, append(specs(bulk, "bulk"), specs(5, "nobody's")...))
	require.NoError(t, err)
	serve := func(queue string) *engine.Engine {
		return working(t, pool, func(c *engine.Config) {
			c.Machines = []fsm.Definition{machine}
			c.Queues = map[string]engine.Queue{queue: {Concurrency: 3}}
		})
	}
	serve("bulk")
	other := serve("urgent")
	require.Eventually(t, func() bool { return begun.Load() > 2 }, testPatience, testGlance)
	for range 2 {
		id, err := other.Insert(ctx, charges.New("urgent").Queue("urgent").Priority(-100))
		require.NoError(t, err)
		_, err = charges.Wait(ctx, other, id)
		require.NoError(t, err)
		require.Less(t, begun.Load(), int64(bulk), "it began behind all that is less urgent")
	}
	steady.Progressing(t, func() (int64, bool) { return begun.Load(), begun.Load() == int64(bulk) }, "nor does it hold up the others")
}
