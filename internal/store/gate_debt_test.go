package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A clock that is set back by an hour stalls no rate for an hour: neither the rate of a key, of all
// keys together, nor of a queue. The debt stays, and is paid off from then on.
func TestAClockThatIsSetBackStallsNoRate(t *testing.T) {
	b := newBench(t)
	minute := store.Rate{N: 60, Per: time.Hour, Burst: 3}
	for name, g := range map[string]store.Gate{
		"a key":             {Name: "g", Label: "customer", Places: store.NoBound, Total: store.NoBound, Rate: minute},
		"all keys together": {Name: "g", Label: "customer", Places: store.NoBound, Total: store.NoBound, TotalRate: minute},
		"a queue":           {Name: "g", Queue: "default", Places: store.NoBound, Total: store.NoBound, Rate: minute},
	} {
		b.clear()
		b.exec(`DELETE FROM gendurable.gates`)
		b.exec(`DELETE FROM gendurable.gate_keys`)
		b.gate(g)
		for range 9 {
			b.of("acme", nil)
		}
		require.Equal(t, 3, total(b.begun()), name)
		b.pass(-time.Hour)
		require.True(t, b.claim(gated).Ahead, name)
		_, err := b.Poll(t.Context(), nil, nil, nil)
		require.NoError(t, err)
		require.Zero(t, total(b.begun()), "%s: what is owed stays", name)
		require.False(t, b.claim(gated).Ahead, name)
		b.pass(2 * time.Minute)
		require.Equal(t, 2, total(b.begun()), name)
	}
}

func total(begun map[string]int) (n int) {
	for _, k := range begun {
		n += k
	}
	return n
}

// A debt that another rule has made counts for a burst of the new one at most, whatever the unit,
// and also if the gate was gone in between. So the next one begins when the new rate says.
func TestADebtOfAnotherRate(t *testing.T) {
	b := newBench(t)
	old, rule := perHour(1000, 1000), perHour(60, 2)
	old.CostLabel = "tokens"
	for name, change := range map[string]func(){
		"set":          func() { b.gate(rule) },
		"drop and set": func() { b.drop(rule.Name); b.gate(rule) },
	} {
		b.clear()
		b.exec(`DELETE FROM gendurable.gate_keys`)
		b.gate(old)
		b.lineUp("acme", 1, columns{"labels": `'{"customer": "acme", "tokens": "900000"}'`})
		require.Equal(t, 1, total(b.begun()), name)
		b.lineUp("acme", 9, nil)
		change()
		got := b.claim(gated)
		require.Empty(t, got.Claims, "%s: no more than the burst is given", name)
		require.LessOrEqual(t, got.NextDue, time.Minute, name)
		b.pass(time.Minute)
		require.Equal(t, 1, total(b.begun()), name)
		require.Empty(t, b.claim(gated).Claims, "%s: it pays as ever", name)
	}
}

func (b bench) drop(name string) {
	b.t.Helper()
	_, err := b.DropGate(b.t.Context(), name, store.By{Actor: "test"})
	require.NoError(b.t, err)
}

// To open a key is to forget its debt, and how slow it was made. It has changed something only if
// there was any of that.
func TestOpeningAKeyForgetsItsDebt(t *testing.T) {
	b := newBench(t)
	g := perHour(60, 2)
	g.CostLabel, g.Adapt = "tokens", true
	b.gate(g)
	b.lineUp("acme", 1, columns{"labels": `'{"customer": "acme", "tokens": "900000"}'`})
	require.Equal(t, 1, total(b.begun()))
	require.NoError(t, b.Throttle(t.Context(), "per-customer/acme", 0))
	b.lineUp("acme", 9, nil)
	require.Zero(t, total(b.begun()))
	open := func() bool {
		changed, err := b.CloseGateKey(t.Context(), "per-customer/acme", time.Time{}, store.By{Actor: "test"})
		require.NoError(t, err)
		return changed
	}
	require.True(t, open())
	require.False(t, open())
	require.Equal(t, 2, total(b.begun()))
	b.pass(2 * time.Hour)
	require.False(t, open(), "it is paid off")
}

// A debt that is paid off in more µs than a bigint has holds up its key, and no claim fails of it.
func TestADebtOfMoreYearsThanThereAre(t *testing.T) {
	b := newBench(t)
	years := store.Rate{N: 1, Per: 365 * 24 * time.Hour, Burst: 1000}
	for i, g := range []store.Gate{{Rate: years, Total: store.NoBound}, {TotalRate: years, Total: store.NoBound}} {
		g.Name, g.Label, g.CostLabel, g.Places, g.Adapt = fmt.Sprint("g", i), "customer", "tokens", store.NoBound, g.Rate.N > 0
		b.clear()
		b.exec(`DELETE FROM gendurable.gates`)
		b.gate(g)
		b.exec(`INSERT INTO gendurable.gate_keys (key, debt, pace) VALUES ($1 || '/acme', 1e12, 0.01), ($1, 1e12, 1) ON CONFLICT (key) DO UPDATE SET debt = 1e12, at = clock_timestamp()`, g.Name)
		b.of("acme", nil)
		b.insert(columns{"fsm": `'m'`, "step": `'s'`, "labels": `'{}'`})
		b.claim(gated)
		got := b.claim(gated)
		require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing'`), "the one without a gate")
		require.Greater(t, got.NextDue, 24*time.Hour)
	}
}
