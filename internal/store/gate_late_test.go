package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// While claims put very many instances of one customer in line, which were due at once, instances
// of another customer that have become due since get in line and begin. Instances behind no gate
// keep their order.
func TestManyThatAreDueAtOnceHoldUpNobody(t *testing.T) {
	big := tier.Pick(4_000, 100_000)
	b := newBench(t)
	b.gate(store.Gate{Name: "each", Label: "customer", Machine: "m", Places: 2, Total: store.NoBound})
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, labels, eligible_at) SELECT 'm', 's', '{"customer": "big"}', now() - interval '1 min' FROM generate_series(1, $1::int)`, big)
	small := []int64{b.of("small", columns{"eligible_at": `now() - interval '2 s'`}), b.of("small", columns{"eligible_at": `now() - interval '1 s'`})}
	free := []int64{b.insert(columns{"fsm": `'x'`, "step": `'s'`, "eligible_at": `now() - interval '3 s'`}), b.insert(columns{"fsm": `'x'`, "step": `'s'`, "eligible_at": `now() - interval '2 s'`})}
	later := b.of("small", columns{"eligible_at": `now() + interval '1 h'`})
	b.exec(`VACUUM ANALYZE gendurable.gen_durable`)
	turn, begun := store.Turn{}, map[int64]int{}
	for n := 1; len(begun) < 6; n++ {
		got := b.claim(most(10), window(1000), knowing("m/1", "x/1"), func(p *store.ClaimParams) { p.Gated, p.Lines = true, turn })
		turn = got.Turn
		for _, c := range got.Claims {
			begun[c.ID] = n
		}
		require.Less(t, n, big/1000+10)
	}
	for _, id := range small {
		require.Contains(t, begun, id)
		require.LessOrEqual(t, begun[id], 3, "before all of the other customer's are in line")
	}
	require.GreaterOrEqual(t, begun[free[0]], big/1200, "it is behind them, and is not claimed out of turn")
	require.LessOrEqual(t, begun[free[0]], begun[free[1]])
	require.NotContains(t, begun, later)
	require.Equal(t, "- - 0", b.placed(later))
}
