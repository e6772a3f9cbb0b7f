package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// counted returns what is said of a gate.
func (b bench) counted(name string) store.GateCount {
	b.t.Helper()
	gates, err := b.Gates(b.t.Context())
	require.NoError(b.t, err)
	for _, g := range gates {
		if g.Name == name {
			return g
		}
	}
	require.Fail(b.t, "no such gate")
	return store.GateCount{}
}

// The gate of a queue holds back who is in front there, while it lets none begin.
func TestTheGateOfAQueueSaysWhoWaits(t *testing.T) {
	of := func(places int, rate store.Rate) store.Gate {
		return store.Gate{Name: "whole", Queue: "default", Places: places, Rate: rate, Total: store.NoBound}
	}
	for name, c := range map[string]struct {
		gate  store.Gate
		begin int // how many of ten do
	}{
		"places": {of(2, store.Rate{}), 2},
		"none":   {of(0, store.Rate{}), 0},
		"a rate": {of(store.NoBound, store.Rate{N: 1, Per: time.Hour, Burst: 3}), 3},
		"room":   {of(100, store.Rate{}), 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.gate(c.gate)
			for range 10 {
				b.of("acme", columns{"eligible_at": `now() - interval '1 hour'`})
			}
			b.of("acme", columns{"eligible_at": `now() + interval '1 hour'`})
			got := b.claim(gated, most(4), window(100), func(p *store.ClaimParams) { p.Seats = true })
			require.Len(t, got.Claims, c.begin)
			said := b.counted("whole")
			if name == "room" {
				require.Zero(t, said.Waiting, "nobody waits for the gate")
				require.Zero(t, said.Lag)
				return
			}
			require.Equal(t, 10-c.begin, said.Waiting)
			require.Greater(t, said.Lag, time.Hour-time.Second)
		})
	}
}

// Behind a gate with a long line, of a name before or after its own, each other gate says who waits
// there.
func TestALongLineHidesNoOther(t *testing.T) {
	b := newBench(t)
	rows := tier.Pick(20_000, 110_000)
	b.gate(store.Gate{Name: "long", Label: "customer", Places: 0, Total: store.NoBound})
	for _, name := range []string{"a", "long-er", "z"} {
		b.gate(store.Gate{Name: name, Machine: name, Places: 0, Total: store.NoBound})
		b.exec(fmt.Sprintf(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, state, eligible_at)
			SELECT 'm', 's', 'queue ' || i, 3, '%s', '{}', now() - interval '1 hour' FROM generate_series(1, 2) i`, name))
	}
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, state, eligible_at)
		SELECT 'm', 's', 'queue 1', 3, 'long/' || i, '{}', now() - interval '2 hours' FROM generate_series(1, $1::int) i`, rows)
	b.exec(`VACUUM ANALYZE gendurable.gen_durable`)
	for _, name := range []string{"a", "long-er", "z"} {
		require.Equal(t, 2, b.counted(name).Waiting, name)
		require.InDelta(t, time.Hour, b.counted(name).Lag, float64(5*time.Minute), name)
	}
	require.Equal(t, min(rows, 100_000/8), b.counted("long").Waiting, "its share")
	require.Greater(t, b.counted("long").Lag, 2*time.Hour-time.Second)
}
