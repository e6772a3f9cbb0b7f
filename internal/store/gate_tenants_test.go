package store_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// Under load, the share of each tenant is within a tenth of its weight, with any inserts of the
// others: here the first one has inserted ten times as many, before all others. The proof, and
// FAIR=1, runs it with 10, 1,000 and 100,000 tenants as well.
func TestSharesOfTenants(t *testing.T) {
	for _, c := range []struct {
		tenants, processes int
		rounds             int // in which each tenant has so many claims as its weight says
		long               bool
	}{
		{10, 3, 40, true},
		{200, 2, 20, false},
		{1000, 2, 20, true},
		{100_000, 1, 1, true}, // with one process, all have their turns when a round ends
	} {
		t.Run(fmt.Sprint(c.tenants), func(t *testing.T) {
			if c.long && os.Getenv("FAIR") == "" {
				tier.Needs(t, tier.Proof)
			}
			b := newBench(t)
			b.gate(store.Gate{Name: "fair", Label: "customer", Places: store.NoBound, Total: store.NoBound})
			// Tenant n has the weight 1, 2, 3 or 5.
			b.exec(`INSERT INTO gendurable.gate_keys (key, weight) SELECT 'fair/t' || n, (ARRAY[1, 2, 3, 5])[1 + n % 4] FROM generate_series(0, $1::int - 1) n`, c.tenants)
			b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, pick_lane, gate, labels, eligible_at)
				SELECT 'm', 's', 3, 'fair/t' || t, jsonb_build_object('customer', 't' || t), now() - CASE WHEN t = 0 THEN 2 ELSE 1 END * interval '1 h'
				FROM generate_series(0, $1::int - 1) t, generate_series(1, (ARRAY[1, 2, 3, 5])[1 + t % 4] * (1 + $2::int) * CASE WHEN t = 0 THEN 10 ELSE 1 END)`,
				c.tenants, c.rounds)
			b.exec(`ANALYZE gendurable.gen_durable`)
			weights := b.number(`SELECT sum(weight) FROM gendurable.gate_keys`)
			turns := make([]store.Turn, c.processes)
			left := weights * c.rounds
			for n := 0; left > 0; n++ {
				require.Less(t, n, 10*(weights*c.rounds+100), "claims bring too little")
				turn := &turns[n%c.processes]
				got := b.claim(gated, most(min(left, 470)), window(470), func(p *store.ClaimParams) { p.Lines = *turn })
				*turn = got.Turn
				left -= len(got.Claims)
			}
			worst := b.text(`SELECT round(max(abs(coalesce(n, 0) - k.weight * $1::int) / (k.weight * $1::numeric)), 3)::text
				FROM gendurable.gate_keys k LEFT JOIN (SELECT gate, count(*) AS n FROM gendurable.gen_durable WHERE status = 'executing' GROUP BY gate) g ON g.gate = k.key`, c.rounds)
			t.Logf("%d tenants, %d claims by %d processes: no share is further from its weight than %s of it", c.tenants, weights*c.rounds, c.processes, worst)
			require.LessOrEqual(t, worst, "0.100")
		})
	}
}
