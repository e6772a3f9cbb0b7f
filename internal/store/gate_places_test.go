package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// place gives a key of gate g its own places, or takes them away.
func (b bench) place(key string, places int) bool {
	b.t.Helper()
	changed, err := b.PlaceGateKey(b.t.Context(), key, places, store.By{Actor: "test"})
	require.NoError(b.t, err)
	return changed
}

// A key has its own places instead of its gate's. Other keys, a total, a rate and a gate that lets
// none begin are as they were. The look for keys that cannot begin knows these places, too.
func TestAKeyHasPlacesOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		gate      store.Gate
		own       int
		acme, zoo int // of ten each
	}{
		"more":                    {store.Gate{Places: 2}, 5, 5, 2},
		"fewer":                   {store.Gate{Places: 5}, 1, 1, 5},
		"a gate without a bound":  {store.Gate{Places: store.NoBound}, 3, 3, 10},
		"below a total":           {store.Gate{Places: 2, Total: 20}, 5, 5, 2},
		"beside a rate":           {store.Gate{Places: 4, Rate: store.Rate{N: 3, Per: time.Hour, Burst: 3}}, 2, 2, 3},
		"a rate below the places": {store.Gate{Places: 1, Rate: store.Rate{N: 3, Per: time.Hour, Burst: 3}}, 9, 3, 1},
		"a gate for runs":         {store.Gate{Places: 1, Run: true}, 3, 3, 1},
		"a gate for nothing":      {store.Gate{Places: 0}, 5, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if c.gate.Total == 0 {
				c.gate.Total = store.NoBound
			}
			c.gate.Name, c.gate.Label = "g", "customer"
			b.gate(c.gate)
			require.True(t, b.place("g/acme", c.own))
			require.False(t, b.place("g/acme", c.own))
			began := map[string][]*step.Claim{}
			claim := func() {
				for range 3 {
					got := b.claim(gated, most(50), window(50))
					for _, one := range got.Claims {
						began[one.Labels["customer"]] = append(began[one.Labels["customer"]], one)
					}
				}
			}
			for n := range 10 {
				for _, customer := range []string{"acme", "zoo"} {
					b.of(customer, columns{"pick_lane": `3`, "gate": quote("g/" + customer), "eligible_at": fmt.Sprintf("now() - interval '1 h' + interval '%d s'", n)})
				}
			}
			claim()
			require.Len(t, began["acme"], c.acme)
			require.Len(t, began["zoo"], c.zoo)
			if c.gate.Places != 0 {
				blocked := map[string]bool{}
				runs, _ := b.scout("default", 100, false)
				for _, r := range runs {
					blocked[r[0]], blocked[r[1]] = true, true
				}
				require.True(t, blocked["g/acme"], "%v", runs)
				require.Equal(t, c.zoo < 10, blocked["g/zoo"], "%v", runs)
			}
		})
	}
}

// Places that are raised are there for the next claim, and places that are lowered let none begin
// before fewer execute. A key that loses its own places has its gate's again.
func TestPlacesOfAKeyChange(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "g", Label: "customer", Places: 2, Total: store.NoBound})
	for n := range 20 {
		b.of("acme", columns{"pick_lane": `3`, "gate": `'g/acme'`, "eligible_at": fmt.Sprintf("now() - interval '1 h' + interval '%d s'", n)})
	}
	var running []*step.Claim
	claims := func(want int) {
		t.Helper()
		got := b.claim(gated, most(50), window(50)).Claims
		require.Len(t, got, want)
		running = append(running, got...)
	}
	end := func(n int) {
		for _, c := range running[:n] {
			b.finish(c)
		}
		running = running[n:]
	}
	claims(2)
	b.place("g/acme", 4)
	claims(2)
	b.place("g/acme", 1)
	claims(0)
	end(3)
	claims(0)
	end(1)
	claims(1)
	require.True(t, b.place("g/acme", 0))
	require.False(t, b.place("g/acme", 0))
	claims(1)
	require.False(t, b.place("g/other", 0), "it has no row")
	require.Equal(t, "g/acme", b.text(`SELECT string_agg(key, ' ') FROM gendurable.gate_keys`))

	_, err := b.PlaceGateKey(t.Context(), "none/x", 1, store.By{Actor: "test"})
	require.ErrorIs(t, err, store.ErrNoGate)
	b.gate(store.Gate{Name: "all", Places: 2, Total: store.NoBound})
	_, err = b.PlaceGateKey(t.Context(), "all/x", 1, store.By{Actor: "test"})
	require.ErrorIs(t, err, store.ErrNoKey)
}

// The sweep of unused keys leaves a key with its own places, and a poll tells of it.
func TestPlacesOfAKeyAreKept(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "g", Label: "customer", Places: 2, Total: store.NoBound})
	b.place("g/acme", 4)
	b.place("g/zoo", 7)
	b.place("g/zoo", 0)
	b.exec(`UPDATE gendurable.gate_keys SET at = now() - interval '1 day'`)
	require.Equal(t, 1, b.prune(forgetting).GateKeys)
	polled, err := b.Poll(t.Context(), nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"g/acme": 4}, polled.Own)
	require.Len(t, polled.Gates, 1)
}
