package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// When a place becomes free, the process that had it lets the next one go without a poll: here
// polls are an hour apart.
func TestTheNextGoesWithoutAPoll(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]engine.Gate{
		"places":           {Name: "g", Label: "customer", Places: 1},
		"a total":          {Name: "g", Label: "customer", Places: 2, Total: 1},
		"a queue":          {Name: "g", Queue: "default", Places: 1},
		"whole runs":       {Name: "g", Label: "customer", Places: 1, Run: true},
		"of another queue": {Name: "g", Machine: "child", Places: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, pool := within(t), pgtest.Pool(t, pgtest.Migrated(t))
			_, err := open(t, pool).Admin().SetGate(ctx, g)
			require.NoError(t, err)
			e := working(t, pool, func(c *engine.Config) {
				c.Machines = []fsm.Definition{children.Job(func(_ context.Context, s string) (string, error) { return s, nil })}
				c.Queues = map[string]engine.Queue{"default": {Concurrency: 4, PollMin: time.Hour}, "other": {Concurrency: 1, PollMin: time.Hour}}
			})
			var specs []fsm.Spec
			for n := range 12 {
				spec := children.New("x").Label("customer", "acme")
				if name == "of another queue" && n%2 == 1 {
					spec = spec.Queue("other")
				}
				specs = append(specs, spec)
			}
			ids, err := e.InsertMany(ctx, specs)
			require.NoError(t, err)
			for _, id := range ids {
				_, err := children.Wait(ctx, e, id.ID)
				require.NoError(t, err)
			}
		})
	}
}

// A place that becomes free in one process is found by the polls of another, which serves another
// queue.
func TestAnotherProcessFindsThePlace(t *testing.T) {
	t.Parallel()
	ctx, pool := within(t), pgtest.Pool(t, pgtest.Migrated(t))
	_, err := open(t, pool).Admin().SetGate(ctx, engine.Gate{Name: "g", Machine: "child", Places: 1})
	require.NoError(t, err)
	entered, leave := make(chan string), make(chan struct{})
	process := func(queue string) *engine.Engine {
		return working(t, pool, func(c *engine.Config) {
			c.Machines = []fsm.Definition{children.Job(func(ctx context.Context, s string) (string, error) {
				select {
				case entered <- s:
				case <-ctx.Done():
				}
				select {
				case <-leave:
				case <-ctx.Done():
				}
				return s, nil
			})}
			c.Queues = map[string]engine.Queue{queue: {Concurrency: 4}}
			c.DrainTimeout = time.Millisecond
		})
	}
	one, other := process("one"), process("other")
	first, err := one.Insert(ctx, children.New("first").Queue("one"))
	require.NoError(t, err)
	require.Equal(t, "first", <-entered)
	second, err := other.Insert(ctx, children.New("second").Queue("other"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		causes, err := one.Admin().Why(ctx, second)
		return err == nil && len(causes) == 1 && causes[0].Kind == engine.CauseGate && causes[0].IDs[0] == first
	}, testPatience, testGlance)
	leave <- struct{}{}
	require.Equal(t, "second", <-entered)
	leave <- struct{}{}
	_, err = children.Wait(ctx, other, second)
	require.NoError(t, err)
}
