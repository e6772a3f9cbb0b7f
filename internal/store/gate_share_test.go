package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// While all keys have work, each has its share of all claims within a tenth of its weight, and one
// start more or less for each process, which may just have begun a turn: by claims of all sizes, of
// several processes that each go round by themselves, also where a total of all keys, a rate of all
// keys or a gate of the queue leaves them few places at a time.
func TestSharesGoByWeight(t *testing.T) {
	b := newBench(t)
	claims := tier.Pick(240, 480)
	weights := map[string]int{"a": 1, "b": 2, "c": 3, "d": 6}
	b.gate(store.Gate{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: 9})
	sum := 0
	for c, weight := range weights {
		b.lineUp(c, claims*weight/12*12/10+10, nil)
		_, err := b.WeighGateKey(t.Context(), perCustomer.Name+"/"+c, weight, store.By{Actor: "test"})
		require.NoError(t, err)
		sum += weight
	}
	many := store.Rate{N: 1000, Per: time.Second, Burst: 4}
	for name, bounds := range map[string][]store.Gate{
		"by nothing":           {{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: store.NoBound}},
		"by a total":           {{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: 7}},
		"by a rate of all":     {{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: store.NoBound, TotalRate: many}},
		"by a queue":           {{Name: "ceiling", Queue: "default", Places: 5, Total: store.NoBound}},
		"by a queue's rate":    {{Name: "ceiling", Queue: "default", Places: store.NoBound, Total: store.NoBound, Rate: many}},
		"by a total and queue": {{Name: perCustomer.Name, Label: "customer", Places: 6, Total: 7}, {Name: "ceiling", Queue: "default", Places: 5, Total: store.NoBound}},
	} {
		b.exec(`DELETE FROM gendurable.gates WHERE name = 'ceiling'`)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', finished_at = NULL, pick_lane = 3, gate = 'per-customer/' || (labels->>'customer'), place = NULL, seat = NULL`)
		b.gate(store.Gate{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: store.NoBound})
		for _, g := range bounds {
			b.gate(g)
		}
		random := rand.New(rand.NewPCG(1, 2))
		var turns [3]store.Turn
		var running []*step.Claim
		begun, all := map[string]int{}, 0
		for n := 0; all < claims; n++ {
			require.Less(t, n, 50*claims, "it stands still: %s", name)
			turn := &turns[n%len(turns)]
			got := b.claim(gated, most(1+random.IntN(6)), window(10), func(p *store.ClaimParams) { p.Lines = *turn })
			*turn = got.Turn
			for c, k := range perKey(got.Claims) {
				begun[c], all = begun[c]+k, all+k
			}
			running = append(running, got.Claims...)
			random.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
			for len(running) > 0 && (len(running) > 12 || random.IntN(3) > 0) {
				b.finish(running[0])
				running = running[1:]
			}
		}
		for c, weight := range weights {
			share := float64(all*weight) / float64(sum)
			require.InDelta(t, share, begun[c], share/10+float64(len(turns)), fmt.Sprint(name, ": ", c, " of ", begun))
		}
	}
}
