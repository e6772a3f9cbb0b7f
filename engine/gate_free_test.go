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
