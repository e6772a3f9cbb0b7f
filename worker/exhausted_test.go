package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A batch goes at once if nothing more can come: see gates.exhausted. Otherwise it waits.
func TestABatchDoesNotWaitForWhatCannotCome(t *testing.T) {
	const none = store.NoBound
	slow := store.Rate{N: 1, Per: time.Hour, Burst: 3}
	for name, c := range map[string]struct {
		gates store.Gates
		waits bool
	}{
		"no gate":            {nil, true},
		"places of a step":   {store.Gates{{Name: "g", Machine: "m", Step: "b", Places: 3}}, false},
		"places of a queue":  {store.Gates{{Name: "g", Queue: "q", Places: 3}}, false},
		"places of runs":     {store.Gates{{Name: "g", Machine: "m", Places: 3, Run: true}}, false},
		"a rate":             {store.Gates{{Name: "g", Machine: "m", Places: none, Rate: slow}}, false},
		"a rate of a queue":  {store.Gates{{Name: "g", Queue: "q", Places: none, Rate: slow}}, false},
		"more places":        {store.Gates{{Name: "g", Machine: "m", Places: 4}}, true},
		"a faster rate":      {store.Gates{{Name: "g", Machine: "m", Places: none, Rate: store.Rate{N: 1, Per: time.Second, Burst: 3}}}, true},
		"another machine's":  {store.Gates{{Name: "g", Machine: "other", Places: 3}}, true},
		"places of each":     {store.Gates{{Name: "g", Label: "customer", Places: 3}}, true},
		"others by a label":  {store.Gates{{Name: "g", Machine: "m", Places: 3}, {Name: "h", Machine: "m", Label: "vip", Places: 3}}, true},
		"a label of no step": {store.Gates{{Name: "g", Machine: "m", Places: 3}, {Name: "h", Machine: "m", Step: "other", Label: "vip", Places: 3}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				calls := batched(s, 10, 20*time.Second, nil)
				called := func() (sizes []int) {
					s.note(func() {
						for _, call := range *calls {
							sizes = append(sizes, len(call.ids))
						}
					})
					return sizes
				}
				s.gates(c.gates...)
				p := s.start()
				s.pass(5 * time.Second)
				for range 3 {
					s.db.insert(atBatch)
				}
				p.Nudge("q")
				s.pass(time.Second)
				if c.waits {
					require.Empty(t, called())
					s.pass(20 * time.Second)
				}
				require.Equal(t, []int{3}, called())
			})
		})
	}
}
