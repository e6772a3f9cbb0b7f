package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// forgetting are the parameters of a GC that forgets keys of gates, two keys at a time.
var forgetting = store.PruneParams{Done: time.Hour, Failed: time.Hour, Tombstones: 10, Limit: 2, Gates: true}

// The GC forgets a key once it says no more than no row would.
func TestKeysAreForgotten(t *testing.T) {
	b := newBench(t)
	g := perHour(0, 0)
	g.Rate = store.Rate{N: 1, Per: time.Minute, Burst: 4}
	g.TotalRate = store.Rate{N: 6, Per: time.Hour, Burst: 4}
	b.gate(g)
	b.gate(store.Gate{Name: "places", Label: "customer", Places: 1, Total: store.NoBound})
	b.exec(`UPDATE gendurable.gates SET updated_at = now() - interval '1 hour'`)
	b.exec(`INSERT INTO gendurable.gate_keys (key, debt, at, pace, weight, closed_until) VALUES
		('per-customer', 3, now() - interval '20 min', 1, 1, NULL), -- of the total rate, which is a tenth of the other
		('per-customer/paid', 3, now() - interval '20 min', 1, 1, NULL),
		('per-customer/owes', 30, now() - interval '20 min', 1, 1, NULL),
		('per-customer/used', 0, now() - interval '9 min', 1, 1, NULL),
		('per-customer/slow', 3, now() - interval '20 min', 0.1, 1, NULL),
		('per-customer/recovers', 0, now() - interval '20 min', 0.1, 1, NULL),
		('per-customer/recovered', 0, now() - interval '40 min', 0.1, 1, NULL),
		('per-customer/weighs', 0, now() - interval '20 min', 1, 2, NULL),
		('per-customer/closed', 0, now() - interval '20 min', 1, 1, now() + interval '1 min'),
		('per-customer/open', 0, now() - interval '20 min', 1, 1, now() - interval '2 min'),
		('per-customer/future', 3, now() + interval '20 min', 1, 1, NULL),
		('places/slow', 0, now() - interval '20 min', 0.1, 1, NULL),
		('places', 0, now() - interval '20 min', 1, 1, '9999-12-31'),
		('gone/owes', 1e12, now() - interval '20 min', 0.1, 1, NULL),
		('gone/weighs', 1e12, now() - interval '20 min', 0.1, 2, NULL)`)
	p := forgetting
	p.Gates = false
	require.Zero(t, b.prune(p).GateKeys)
	require.Equal(t, 5, b.prune(forgetting).GateKeys)
	require.ElementsMatch(t, []string{"per-customer", "per-customer/owes", "per-customer/used", "per-customer/slow", "per-customer/recovers",
		"per-customer/weighs", "per-customer/closed", "per-customer/future", "places", "gone/weighs"}, b.column(`SELECT key FROM gendurable.gate_keys`))
}

// A key that a claim has locked, which is about to pay, is not forgotten, nor is one that was
// closed since. A claim and a throttle that meet a key which is just being forgotten lose neither a
// token nor the news.
func TestForgettingBesideAClaim(t *testing.T) {
	b := newBench(t)
	b.gate(perHour(60, 2))
	b.lineUp("acme", 5, nil)
	idle := func() {
		b.exec(`DELETE FROM gendurable.gate_keys`)
		b.exec(`INSERT INTO gendurable.gate_keys (key, at) VALUES ('per-customer/acme', now() - interval '20 min')`)
	}
	for how, act := range map[string]string{
		"a claim pays":   `UPDATE gendurable.gate_keys SET debt = 2, at = now()`,
		"somebody looks": `SELECT FROM gendurable.gate_keys FOR NO KEY UPDATE`,
		"a throttle":     `UPDATE gendurable.gate_keys SET closed_until = now() + interval '1 h'`,
	} {
		idle()
		tx := b.begin()
		b.inTx(tx, act)
		require.Zero(t, b.prune(forgetting).GateKeys, how)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, how == "somebody looks", b.prune(forgetting).GateKeys == 1, how)
	}

	idle()
	sweep := b.begin()
	b.inTx(sweep, `DELETE FROM gendurable.gate_keys`)
	require.Empty(t, b.claim(gated).Claims, "it waits for nobody, and begins nothing that it could not pay for")
	require.NoError(t, sweep.Commit(t.Context()))
	require.Len(t, b.claim(gated).Claims, 2)
	require.Empty(t, b.claim(gated).Claims, "it has paid")

	idle()
	sweep = b.begin()
	b.inTx(sweep, `DELETE FROM gendurable.gate_keys`)
	told := make(chan error, 1)
	go func() { told <- b.Throttle(t.Context(), "per-customer/acme", time.Hour) }()
	b.waiting(1)
	require.NoError(t, sweep.Commit(t.Context()))
	require.NoError(t, <-told)
	require.Empty(t, b.claim(gated).Claims, "it is closed")
}

// Processes that are told of too many requests in the same moment slow a key down once.
func TestManySlowAKeyDownOnce(t *testing.T) {
	b := newBench(t)
	g := perHour(60, 2)
	g.Adapt = true
	b.gate(g)
	pace := func() string { return b.text(`SELECT pace::text FROM gendurable.gate_keys`) }
	clock := func() (at time.Time) {
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&at))
		return at
	}
	storm := func(of, at string) string { // of a key with that pace, slowed down at that time
		t.Helper()
		var within time.Duration
		for again := true; again; again = again || within >= 400*time.Millisecond { // else it was no single moment
			again = false
			b.exec(`DELETE FROM gendurable.gate_keys`)
			if of != "" {
				b.exec(`INSERT INTO gendurable.gate_keys (key, pace, slowed_at) VALUES ('per-customer/acme', ` + of + `, ` + at + `)`)
			}
			began := clock()
			told := make(chan error, 4)
			for range cap(told) {
				go func() { told <- b.Throttle(t.Context(), "per-customer/acme", 0) }()
			}
			for range cap(told) {
				again = <-told != nil || again // it waited too long for the others
			}
			within = clock().Sub(began)
		}
		return pace()
	}
	require.Equal(t, "0.5", storm("", ""), "the first is as slow as the others")
	require.Equal(t, "0.5", storm("1", "NULL"))
	require.Equal(t, "0.25", storm("0.5", "now() - interval '1 min'"))
	require.Equal(t, "0.01", storm("0.015", "now() - interval '1 min'"))
	require.Equal(t, "0.125", storm("0.25", "now() + interval '1 h'"), "the clock was set back")
	require.NoError(t, b.Throttle(t.Context(), "per-customer/acme", time.Hour), "a time is not withheld")
	require.Equal(t, "0.125 t", b.text(`SELECT concat_ws(' ', pace, closed_until > now()) FROM gendurable.gate_keys`))
}
