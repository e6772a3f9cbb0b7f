package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// shut are the ways in which a gate lets none of its keys begin.
var shut = map[string]func(b bench){
	"closed for a time": func(b bench) {
		b.gate(store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: 1, Total: store.NoBound})
		_, err := b.CloseGateKey(b.t.Context(), "a", time.Now().Add(time.Hour), store.By{Actor: "test"})
		require.NoError(b.t, err)
	},
	"without places": func(b bench) {
		b.gate(store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: 0, Total: store.NoBound})
	},
	"a total that is used up": func(b bench) {
		b.gate(store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: store.NoBound, Total: 1})
		b.insert(columns{"fsm": `'shut'`, "step": `'s'`, "gate": `'a/x'`, "place": `1`, "status": `'executing'`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 h'`})
	},
	"a rate of all that is used up": func(b bench) {
		b.gate(store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: store.NoBound, Total: store.NoBound, TotalRate: store.Rate{N: 1, Per: time.Hour, Burst: 1}})
		b.exec(`INSERT INTO gendurable.gate_keys (key, debt) VALUES ('a', 1)`)
	},
	"a gate for runs": func(b bench) {
		b.gate(store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: 0, Total: store.NoBound, Run: true})
	},
}

// A claim beside a hundred thousand keys of a gate that lets none of them begin touches a tenth
// more than without them, in a table as large. It leaves out the gate by one comparison, wherever
// its turn begins, and has visited all lines then.
func TestAClaimJumpsOverAGateThatIsShut(t *testing.T) {
	keys := tier.Pick(5_000, 100_000)
	for name, shuts := range shut {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.exec(`ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = off)`)
			shuts(b)
			b.gate(store.Gate{Name: "z", Label: "customer", Machine: "m", Places: 100, Total: store.NoBound})
			e := b.explained(name)
			fill := func(queue string) {
				b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, labels)
					SELECT 'shut', 's', $1, 3, 'a/' || n, jsonb_build_object('customer', n::text) FROM generate_series(1, $2::int) n`, queue, keys)
				b.exec(`VACUUM ANALYZE gendurable.gen_durable`)
			}
			turn := store.Turn{Gates: map[string]store.GateTurn{}}
			once := func(after string) int {
				c, rows := e.measure(&measured{verb: name, most: 1, use: func(e explained, _ any) int {
					turn.Gates["a/"] = store.GateTurn{After: after}
					got := e.claim(gated, most(planRows), window(planRows), func(p *store.ClaimParams) { p.Lines = turn })
					require.Len(t, got.Claims, 50)
					require.False(t, got.Cut)
					return 1 << 20 // measure tries again only where more is touched
				}, prepare: func(e explained) any {
					e.exec(`DELETE FROM gendurable.gen_durable WHERE fsm = 'm'`)
					e.exec(`VACUUM gendurable.gen_durable`)
					for n := range 50 {
						e.insert(columns{"fsm": `'m'`, "step": `'s'`, "pick_lane": `3`, "gate": quote(fmt.Sprint("z/", n)), "labels": fmt.Sprintf(`'{"customer": "%d"}'`, n)})
					}
					return nil
				}})
				require.Positive(t, rows)
				return c.buffers
			}
			claim := func(after string) int { // the least of three: what autovacuum has left to do comes on top
				least := 0
				for n := range 3 {
					if c := once(after); n == 0 || c < least {
						least = c
					}
				}
				return least
			}
			for range 3 { // the indexes are as deep
				fill("elsewhere")
			}
			beside := claim("")
			fill("default")
			for _, after := range []string{"", "a/3000"} {
				many := claim(after)
				t.Logf("%d buffers without keys, %d beside %d, after %q", beside, many, keys, after)
				require.LessOrEqual(t, float64(many), 1.1*float64(beside), "after %q", after)
			}
		})
	}
}
