package work

import (
	"slices"
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

// Several groups have the places of a gate together. The first goes if they have all, so that the
// others may fill up. Instances that are alike in a gate's label share its bounds for each value.
func TestABatchDoesNotWaitForWhatOthersKeepFromComing(t *testing.T) {
	const none = store.NoBound
	slow := store.Rate{N: 1, Per: time.Hour, Burst: 3}
	two := store.Rate{N: 1, Per: time.Hour, Burst: 2}
	of := func(g store.Gate) store.Gates {
		g.Name, g.Label = "g", "of"
		return store.Gates{g}
	}
	for name, c := range map[string]struct {
		gates  store.Gates
		labels []string // of the instances, which form groups by them; "": none
		own    int      // places of a's key, if it has its own
		alike  bool     // the groups are by the label, instead of by what the states say
		now    []int    // sizes of the batches that go at once; all others wait
	}{
		"places of a step":             {store.Gates{{Name: "g", Machine: "m", Step: "b", Places: 3}}, []string{"a", "a", "b"}, 0, false, []int{2}},
		"places of a queue":            {store.Gates{{Name: "g", Queue: "q", Places: 3}}, []string{"a", "b", "b"}, 0, false, []int{1}},
		"places of runs":               {store.Gates{{Name: "g", Machine: "m", Places: 3, Run: true}}, []string{"a", "b", "c"}, 0, false, []int{1}},
		"more places":                  {store.Gates{{Name: "g", Machine: "m", Places: 4}}, []string{"a", "a", "b"}, 0, false, nil},
		"a rate":                       {store.Gates{{Name: "g", Machine: "m", Places: none, Rate: slow}}, []string{"a", "a", "b"}, 0, false, []int{1, 2}},
		"a larger burst":               {store.Gates{{Name: "g", Machine: "m", Places: none, Rate: slow}}, []string{"a", "b"}, 0, false, nil},
		"places of each, by the label": {of(store.Gate{Places: 2, Total: none}), []string{"a", "a", "b"}, 0, true, []int{2}},
		"places of each, by the state": {of(store.Gate{Places: 2, Total: none}), []string{"a", "a", "b"}, 0, false, nil},
		"its own places, fewer":        {of(store.Gate{Places: 5, Total: none}), []string{"a", "a", "b"}, 2, true, []int{2}},
		"its own places, more":         {of(store.Gate{Places: 2, Total: none}), []string{"a", "a", "b"}, 3, true, nil},
		"its own places alone":         {of(store.Gate{Places: none, Total: none}), []string{"a", "a", "b"}, 2, true, []int{2}},
		"its own places, closed":       {of(store.Gate{Places: 0, Total: none}), []string{"a", "b"}, 2, true, []int{1, 1}},
		"a total":                      {of(store.Gate{Places: 5, Total: 3}), []string{"a", "a", "b"}, 0, true, []int{2}},
		"a larger total":               {of(store.Gate{Places: 5, Total: 4}), []string{"a", "a", "b"}, 0, true, nil},
		"a rate of each":               {of(store.Gate{Places: none, Total: none, Rate: two}), []string{"a", "a", "b"}, 0, true, []int{2}},
		"a rate of all":                {of(store.Gate{Places: none, Total: none, TotalRate: slow}), []string{"a", "a", "b"}, 0, true, []int{1, 2}},
		"without the label":            {of(store.Gate{Places: 2, Total: 2}), []string{"", ""}, 0, true, nil},
		"without it, at another gate":  {append(of(store.Gate{Places: 9, Total: none}), store.Gate{Name: "h", Machine: "m", Places: 2}), []string{"", ""}, 0, true, []int{2}},
		"another label": {
			append(of(store.Gate{Places: 2, Total: none}), store.Gate{Name: "h", Machine: "m", Label: "vip", Places: 3}),
			[]string{"a", "a", "b"}, 0, true, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				calls := batched(s, 10, 20*time.Second, nil)
				byLabel(s)
				if c.alike {
					s.batch.Alike = []string{"of"}
				}
				called := func() (n []int) {
					s.note(func() { n = sizes(*calls) })
					slices.Sort(n)
					return n
				}
				s.gates(c.gates...)
				if c.own > 0 {
					s.db.own = map[string]int{"g/a": c.own}
				}
				p := s.start()
				s.pass(5 * time.Second)
				for _, value := range c.labels {
					s.db.insert(atBatch, func(r *row) {
						if value != "" {
							labelled(value)(r)
						}
					})
				}
				p.Nudge("q")
				s.pass(time.Second)
				require.Equal(t, c.now, called())
				s.pass(20 * time.Second)
				all := 0
				for _, n := range called() {
					all += n
				}
				require.Len(t, c.labels, all)
			})
		})
	}
}

// A group waits again once another one, which had the rest of the places, has gone.
func TestAGroupFillsUpOnceAnotherHasGone(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		calls := batched(s, 10, 20*time.Second, nil)
		byLabel(s)
		s.gates(store.Gate{Name: "g", Machine: "m", Places: 3})
		p := s.start()
		s.pass(5 * time.Second)
		insert := func(values ...string) {
			for _, value := range values {
				s.db.insert(atBatch, labelled(value))
			}
			p.Nudge("q")
			s.pass(time.Second)
		}
		called := func() (n []int) { s.note(func() { n = sizes(*calls) }); return n }
		insert("a", "a", "b")
		require.Equal(t, []int{2}, called())
		insert("b")
		require.Equal(t, []int{2}, called())
		insert("b")
		require.Equal(t, []int{2, 3}, called(), "now it has all places itself")
	})
}
