package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// perHour is a gate with a rate and no places. A token takes so long that the time which a test
// takes does not matter.
func perHour(n, burst int) store.Gate {
	return store.Gate{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: store.NoBound,
		Rate: store.Rate{N: n, Per: time.Hour, Burst: burst}}
}

// pass lets time pass for the debts of gates.
func (b bench) pass(d time.Duration) {
	b.exec(`UPDATE gendurable.gate_keys SET at = at - $1::bigint * interval '1 microsecond', closed_until = closed_until - $1::bigint * interval '1 microsecond',
		slowed_at = slowed_at - $1::bigint * interval '1 microsecond'`,
		d.Microseconds())
	b.exec(`UPDATE gendurable.gates SET updated_at = updated_at - $1::bigint * interval '1 microsecond'`, d.Microseconds())
}

// taken returns, of each gate, its name, how many places are taken, and of how many values.
func (b bench) taken() (gates []string) {
	counts, err := b.Gates(b.t.Context())
	require.NoError(b.t, err)
	for _, c := range counts {
		gates = append(gates, fmt.Sprintf("%s %d %d", c.Name, c.Taken, c.Values))
	}
	return gates
}

// begun claims at the gates until nothing more may begin, and returns how many did, by customer.
func (b bench) begun() map[string]int {
	n, turn := map[string]int{}, store.Turn{}
	for range 20 {
		got := b.claim(gated, most(100), window(100), func(p *store.ClaimParams) { p.Lines = turn })
		turn = got.Turn
		for c, k := range perKey(got.Claims) {
			n[c] += k
		}
	}
	return n
}

// Of a rate as many begin at once as its burst says, and then one after the other. The claim says
// when.
func TestARate(t *testing.T) {
	b := newBench(t)
	b.gate(perHour(60, 5))
	b.lineUp("acme", 20, nil)
	b.lineUp("zoo", 2, nil)
	require.Equal(t, map[string]int{"acme": 5, "zoo": 2}, b.begun())
	got := b.claim(gated)
	require.Empty(t, got.Claims)
	require.Greater(t, got.NextDue, time.Duration(0))
	require.LessOrEqual(t, got.NextDue, time.Minute)
	b.pass(3 * time.Minute)
	require.Equal(t, map[string]int{"acme": 3}, b.begun())
	b.pass(10 * time.Hour)
	require.Equal(t, map[string]int{"acme": 5}, b.begun(), "no more than the burst, however long nobody came")
	b.pass(-time.Hour)
	require.Empty(t, b.begun(), "a clock that is set back pays nothing off")
	b.pass(time.Hour + time.Minute)
	require.Equal(t, map[string]int{"acme": 1}, b.begun(), "and costs nothing")
}

// Instances count for what their label says. One that costs more than the burst begins alone, when
// nothing is owed, and is paid off.
func TestARateByCost(t *testing.T) {
	b := newBench(t)
	g := perHour(60, 10)
	g.CostLabel = "tokens"
	b.gate(g)
	for i, cost := range []string{"4", "6", "5", "25", "x", "0"} {
		b.lineUp("acme", 1, columns{"labels": quote(`{"customer": "acme", "tokens": "` + cost + `"}`), "priority": fmt.Sprint(i)})
	}
	require.Equal(t, map[string]int{"acme": 2}, b.begun(), "4 and 6")
	b.pass(4 * time.Minute)
	require.Empty(t, b.begun())
	b.pass(time.Minute)
	require.Equal(t, map[string]int{"acme": 1}, b.begun(), "5")
	b.pass(8 * time.Minute)
	require.Empty(t, b.begun(), "25 begins when nothing is owed")
	b.pass(2 * time.Minute)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())
	b.pass(15 * time.Minute)
	require.Empty(t, b.begun(), "it is paid off first")
	b.pass(90 * time.Second)
	require.Equal(t, map[string]int{"acme": 1}, b.begun(), "what is no number, or less than 1, counts for 1")
	b.pass(time.Minute)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())
}

// A key that was told of too many requests is closed for all, or becomes slower and recovers.
func TestAKeyIsThrottled(t *testing.T) {
	b := newBench(t)
	b.gate(perHour(600, 100))
	b.lineUp("acme", 3, nil)
	b.lineUp("zoo", 1, nil)
	require.NoError(t, b.Throttle(t.Context(), "per-customer/acme", time.Minute))
	require.NoError(t, b.Throttle(t.Context(), "per-customer/acme", time.Second), "it never opens sooner")
	require.NoError(t, b.Throttle(t.Context(), "nothing/acme", time.Second))
	require.Equal(t, map[string]int{"zoo": 1}, b.begun())
	got := b.claim(gated)
	require.Greater(t, got.NextDue, 50*time.Second)
	b.pass(time.Minute)
	require.Equal(t, map[string]int{"acme": 3}, b.begun())

	_, err := b.CloseGateKey(t.Context(), "per-customer", time.Now().Add(time.Hour), store.By{Actor: "test"})
	require.NoError(t, err)
	b.lineUp("acme", 1, nil)
	require.Empty(t, b.begun(), "the gate with all its keys")
	_, err = b.CloseGateKey(t.Context(), "per-customer", time.Time{}, store.By{Actor: "test"})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())

	g := perHour(60, 1)
	g.Adapt = true
	b.gate(g)
	b.exec(`UPDATE gendurable.gate_keys SET debt = 0, at = clock_timestamp()`)
	b.lineUp("acme", 9, nil)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())
	for range 3 {
		require.NoError(t, b.Throttle(t.Context(), "per-customer/acme", 0))
		b.exec(`UPDATE gendurable.gate_keys SET slowed_at = slowed_at - interval '1 min'`)
	}
	wait := b.claim(gated).NextDue
	require.Greater(t, wait, 7*time.Minute, "an eighth of one a minute")
	b.pass(8 * time.Minute)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())
	b.pass(100 * time.Hour)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())
	require.Equal(t, "1", b.text(`SELECT pace::text FROM gendurable.gate_keys WHERE key = 'per-customer/acme'`))
}

// A session that has the row of a key locked holds up that key only.
func TestAStrangerHoldsAKey(t *testing.T) {
	b := newBench(t)
	b.gate(perHour(60, 2))
	b.lineUp("acme", 5, nil)
	b.lineUp("zoo", 5, nil)
	b.begun()
	b.pass(time.Hour)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gate_keys WHERE key = 'per-customer/acme' FOR UPDATE`)
	require.Equal(t, map[string]int{"zoo": 2}, b.begun())
}

// Keys with rows in line begin in the ratio of their weights, however many wait at each of them,
// also when claims are cut off in the middle of a turn.
func TestKeysTakeTurns(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = store.NoBound
	b.gate(g)
	b.lineUp("big", 400, columns{"priority": `-5`})
	for _, c := range []string{"a", "b", "c"} {
		b.lineUp(c, 70, nil)
	}
	changed, err := b.WeighGateKey(t.Context(), "per-customer/b", 3, store.By{Actor: "test"})
	require.NoError(t, err)
	require.True(t, changed)
	n, turn := map[string]int{}, store.Turn{}
	for range 20 {
		got := b.claim(gated, most(7), window(7), func(p *store.ClaimParams) { p.Lines = turn })
		turn = got.Turn
		require.Len(t, got.Claims, 7)
		for c, k := range perKey(got.Claims) {
			n[c] += k
		}
	}
	require.Equal(t, 140, n["a"]+n["b"]+n["c"]+n["big"])
	require.InDelta(t, 70, n["b"], 2)
	for _, c := range []string{"a", "c", "big"} {
		require.InDelta(t, 23, n[c], 2, n)
	}
}

// All values of a label together have their own bounds.
func TestTotals(t *testing.T) {
	b := newBench(t)
	g := store.Gate{Name: perCustomer.Name, Label: "customer", Places: 2, Total: 5, TotalRate: store.Rate{N: 60, Per: time.Hour, Burst: 8}}
	b.gate(g)
	for c := range 4 {
		b.lineUp(fmt.Sprint(c), 5, nil)
	}
	claims := b.claim(gated, most(100), window(100)).Claims
	require.Len(t, claims, 5)
	require.Empty(t, b.begun())
	for _, c := range claims {
		b.finish(c)
	}
	more := b.claim(gated, most(100), window(100)).Claims
	require.Len(t, more, 3, "8 of the burst")
	b.pass(time.Minute)
	require.Len(t, b.claim(gated, most(100), window(100)).Claims, 1)
}

// The gate of a queue bounds what claims take from it, from the front and from the lines.
func TestAGateOfAQueue(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "ceiling", Queue: "default", Places: 3, Total: store.NoBound, Rate: store.Rate{N: 60, Per: time.Hour, Burst: 4}})
	b.gate(perCustomer)
	for range 5 {
		b.insert(columns{"fsm": `'m'`, "step": `'s'`, "priority": `-1`})
	}
	b.lineUp("acme", 2, nil)
	other := b.insert(columns{"fsm": `'m'`, "step": `'s'`, "queue": `'other'`})
	first := b.claim(gated).Claims
	require.Len(t, first, 3)
	require.Equal(t, []int64{other}, ids(b.claim(gated, queue("other")).Claims))
	require.Equal(t, 3, b.number(`SELECT count(DISTINCT seat) FROM gendurable.gen_durable WHERE seat BETWEEN 1 AND 3`))
	require.Equal(t, []string{"ceiling 3 1", "per-customer 0 0"}, b.taken())
	got := b.claim(gated)
	require.Empty(t, got.Claims)
	require.True(t, got.Crowded)
	for _, c := range first {
		b.finish(c)
	}
	got = b.claim(gated, func(p *store.ClaimParams) { p.Lines.Blind = true })
	require.Len(t, got.Claims, 1, "the rate has one left")
	require.Equal(t, "per-customer/acme", got.Claims[0].Gate)
	require.Empty(t, b.claim(gated).Claims)
	b.pass(time.Hour)
	require.Len(t, b.claim(gated).Claims, 2)
}

// An instance keeps its place at a gate for whole runs from its first claim to its end, and goes
// through the gates of its steps beside it.
func TestAGateForWholeRuns(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "run", Label: "customer", Run: true, Places: 1, Total: store.NoBound})
	b.gate(store.Gate{Name: "step", Machine: "m", Places: 5, Total: store.NoBound})
	first, second := b.of("acme", nil), b.of("acme", columns{"eligible_at": `now()`})
	zoo := b.of("zoo", nil)
	runs := func(id int64) string {
		return b.text(`SELECT concat_ws(' ', coalesce(run_gate, '-'), coalesce(run_place::text, '-'), coalesce(gate, '-')) FROM gendurable.gen_durable WHERE id = $1`, id)
	}
	b.claim(gated)
	require.Equal(t, "- - run/acme", runs(first))
	b.claim(gated)
	require.Equal(t, "run/acme 1 step", runs(first), "it has its run, and waits for its step")
	require.Equal(t, []string{"run 2 2", "step 0 0"}, b.taken())
	claims := b.claim(gated).Claims
	require.Equal(t, []int64{first, zoo}, ids(claims))
	b.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{go}', locked_by = NULL, lease_expires_at = NULL, gate = NULL, place = NULL
		WHERE id = $1`, first)
	require.Empty(t, b.begun(), "the first one is parked, and still has its place")
	require.Equal(t, "- - run/acme", runs(second))
	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'decided', finished_at = now() WHERE id = $1`, first)
	require.Equal(t, map[string]int{"acme": 1}, b.begun())
	require.Equal(t, "run/acme 1 step", runs(second))
	require.Len(t, b.operate(store.Order{Verb: store.Retry}, first).Changed, 1)
	require.Empty(t, b.begun(), "one that is tried again needs a place again")
}

// Claims of many sessions at once never exceed a rate: as many begin in all as the burst and the
// time allow.
func TestARateIsNotExceededByMany(t *testing.T) {
	b := newBench(t)
	g := perHour(1, 7)
	g.TotalRate = store.Rate{N: 1, Per: time.Hour, Burst: 10}
	b.gate(g)
	for c := range 3 {
		b.lineUp(fmt.Sprint(c), 30, nil)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 8 {
				b.claim(gated, most(2), window(2))
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing'`), 10)
	require.LessOrEqual(t, b.number(`SELECT max(n) FROM (SELECT count(*) AS n FROM gendurable.gen_durable WHERE status = 'executing' GROUP BY gate) g`), 7)
	b.begun()
	require.Equal(t, 10, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing'`))
}

// A total bounds all values of a label also where nothing else bounds each of them.
func TestATotalWithoutPlaces(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: perCustomer.Name, Label: "customer", Places: store.NoBound, Total: 3})
	b.lineUp("acme", 4, nil)
	b.lineUp("zoo", 4, nil)
	got := b.claim(gated, most(100), window(100))
	require.Len(t, got.Claims, 3)
	full := b.claim(gated, most(100), window(100))
	require.Empty(t, full.Claims)
	require.True(t, full.Crowded)
	b.finish(got.Claims[0])
	require.Len(t, b.claim(gated, most(100), window(100)).Claims, 1)
	counts, err := b.Gates(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, counts[0].Taken)
}
