package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// many inserts n instances of a machine, in line at a gate for so many customers, or in front if
// there are none.
func (b bench) many(machine, gate string, customers, n, priority int) {
	b.t.Helper()
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, priority, pick_lane, gate, labels)
		SELECT $1, 's', $5, CASE WHEN $2 = '' THEN 0 ELSE 3 END, nullif($2, '') || CASE WHEN $3::int > 0 THEN '/t' || n % $3::int ELSE '' END,
			CASE WHEN $3::int > 0 THEN jsonb_build_object('customer', 't' || n % $3::int) END FROM generate_series(1, $4::int) n`, machine, gate, customers, n, priority)
}

// starts claims, and ends what it has claimed, until enough have begun. It returns how many of each
// machine did.
func (b bench) starts(limit int, enough func(n map[string]int) bool) map[string]int {
	b.t.Helper()
	b.exec(`VACUUM ANALYZE gendurable.gen_durable`)
	turn, n, last, vain := store.Turn{}, map[string]int{}, store.Place{}, 0
	for round := 0; !enough(n); round++ {
		require.Less(b.t, vain, 10, "it stands still")
		got := b.claim(knowing("bulk/1", "urgent/1", "other/1"), most(limit), window(limit), func(p *store.ClaimParams) {
			p.Gated, p.Lines = true, turn
			if round%10 > 0 { // as the scheduler does
				p.After = last
			}
		})
		if turn = got.Turn; len(got.Claims) > len(got.Lined) {
			last = got.Last
		}
		if vain++; len(got.Claims) > 0 {
			vain = 0
		}
		var gone []int64
		for _, c := range got.Claims {
			n[c.Machine]++
			gone = append(gone, c.ID)
		}
		b.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), gate = NULL, place = NULL, locked_by = NULL, lease_expires_at = NULL WHERE id = ANY($1)`, gone)
	}
	return n
}

// The more urgent instances go first, be they in line at a gate with a label, at one without, or in
// front, and be the bulk of the queue in any other of these. But for one start in 16, no bulk
// begins before all that is urgent has.
func TestTheMoreUrgentGoesFirst(t *testing.T) {
	bulk, urgent := tier.Pick(1_000, 100_000), tier.Pick(200, 2_000)
	at := map[string]int{"": 0, "each": 20, "all": 0}
	for slow := range at {
		for fast := range at {
			if slow == fast {
				continue
			}
			for _, limit := range tier.Pick([]int{10}, []int{1, 10, 200}) {
				t.Run(fmt.Sprintf("%q behind %q, %d", slow, fast, limit), func(t *testing.T) {
					b := newBench(t)
					for machine, gate := range map[string]string{"bulk": slow, "urgent": fast} {
						rule := store.Gate{Name: gate, Machine: machine, Places: 1000, Total: store.NoBound}
						if gate == "each" {
							rule.Label = "customer"
						}
						if gate != "" {
							b.gate(rule)
						}
					}
					b.many("bulk", slow, at[slow], bulk, 100)
					b.many("urgent", fast, at[fast], urgent, -100)
					b.exec(`UPDATE gendurable.gen_durable SET eligible_at = eligible_at - interval '1 h' WHERE fsm = 'bulk'`)
					n := b.starts(limit, func(n map[string]int) bool { return n["urgent"] == urgent })
					t.Logf("%d of bulk began before %d urgent ones", n["bulk"], urgent)
					require.LessOrEqual(t, n["bulk"], (urgent+n["bulk"])/16+limit)
					require.Positive(t, n["bulk"]+limit/200, "what has waited longest has a share")
				})
			}
		}
	}
}

// A gate without a label has as many starts as one with 500 tenants beside it, or as its weight
// says, and the front has as many as both.
func TestGatesShareByTheirWeights(t *testing.T) {
	each := tier.Pick(1_000, 50_000)
	for _, weight := range tier.Pick([]int{3}, []int{1, 3}) {
		for _, limit := range tier.Pick([]int{10}, []int{1, 10, 100}) {
			t.Run(fmt.Sprint(weight, limit), func(t *testing.T) {
				b := newBench(t)
				b.gate(store.Gate{Name: "a", Machine: "bulk", Label: "customer", Places: 100, Total: store.NoBound})
				b.gate(store.Gate{Name: "z", Machine: "urgent", Places: 100, Total: store.NoBound})
				_, err := b.WeighGateKey(t.Context(), "z", weight, store.By{Actor: "test"})
				require.NoError(t, err)
				b.many("bulk", "a", 500, each, 0)
				b.many("urgent", "z", 0, each, 0)
				b.many("other", "", 0, each, 0)
				all := 0
				n := b.starts(limit, func(n map[string]int) bool {
					all = n["bulk"] + n["urgent"] + n["other"]
					return all >= each
				})
				share := float64(all) / 2
				require.InDelta(t, share, n["other"], share/10+float64(limit), "%v", n)
				require.InDelta(t, share/float64(1+weight), n["bulk"], share/10+float64(limit), "%v", n)
			})
		}
	}
}

// An instance that costs as much as the burst of a rate of all, or more, begins in its turn,
// however few slots a process has, and although others could begin at once with the tokens that are
// left.
func TestAnExpensiveInstanceHasItsTurn(t *testing.T) {
	tenants := tier.Pick(30, 1_000)
	for _, slots := range tier.Pick([]int{1, 5}, []int{1, 5, 200}) {
		for _, cost := range tier.Pick([]int{15}, []int{5, 10, 15}) {
			t.Run(fmt.Sprint(slots, cost), func(t *testing.T) {
				b := newBench(t)
				b.gate(store.Gate{Name: "llm", Label: "customer", CostLabel: "cost", Places: store.NoBound, Total: store.NoBound,
					TotalRate: store.Rate{N: 60, Per: time.Hour, Burst: 10}})
				b.gate(store.Gate{Name: "aside", Machine: "other", Places: 3, Total: store.NoBound})
				b.many("m", "llm", tenants, 20*tenants, 0)
				b.many("other", "aside", 0, 20*tenants, 0)
				big := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "pick_lane": `3`, "gate": `'llm/t' || 5`, "priority": `-1`,
					"labels": quote(fmt.Sprintf(`{"customer": "t5", "cost": "%d"}`, cost))})
				b.exec(`VACUUM ANALYZE gendurable.gen_durable`)
				var turns [2]store.Turn // of two processes
				begun := 0
				for n := 0; ; n++ {
					require.Less(t, n, 100*tenants, "it stands still")
					got := b.claim(most(slots), window(slots), knowing("m/1", "other/1"), func(p *store.ClaimParams) { p.Gated, p.Lines = true, turns[n%2] })
					turns[n%2] = got.Turn
					for _, c := range got.Claims {
						if c.Machine == "m" {
							begun++
						}
						if c.ID == big {
							return
						}
						b.finish(c)
					}
					require.LessOrEqual(t, begun, 2*tenants+2*slots, "a round of each process has passed")
					b.pass(time.Minute) // a token
				}
			})
		}
	}
}

// Rows in front that another transaction has locked hold up no line, however urgent they are.
func TestLockedRowsInFrontHoldUpNoLine(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "z", Machine: "urgent", Places: 100, Total: store.NoBound})
	b.many("other", "", 0, 50, -100)
	b.many("urgent", "z", 0, 40, 0)
	_, err := b.begin().Exec(t.Context(), `SELECT FROM gendurable.gen_durable WHERE fsm = 'other' FOR UPDATE`)
	require.NoError(t, err)
	n := b.starts(10, func(n map[string]int) bool { return n["urgent"] == 40 })
	require.Zero(t, n["other"])
}

// A gate is seen beside any number of gates that let no row begin, at any turn.
func TestManyGatesHideNone(t *testing.T) {
	b := newBench(t)
	for n := range 100 {
		b.gate(store.Gate{Name: fmt.Sprintf("shut%d", n), Machine: fmt.Sprintf("s%d", n), Places: n % 2, Total: store.NoBound})
		b.insert(columns{"fsm": quote(fmt.Sprintf("s%d", n)), "step": `'s'`, "pick_lane": `3`, "gate": quote(fmt.Sprintf("shut%d", n))})
		if n%2 == 1 {
			b.insert(columns{"fsm": `'x'`, "step": `'s'`, "gate": quote(fmt.Sprintf("shut%d", n)), "place": `1`, "status": `'executing'`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 h'`})
		}
	}
	b.gate(store.Gate{Name: "z", Machine: "urgent", Places: 100, Total: store.NoBound})
	b.many("urgent", "z", 0, 50, 0)
	b.starts(10, func(n map[string]int) bool { return n["urgent"] == 50 })
}
