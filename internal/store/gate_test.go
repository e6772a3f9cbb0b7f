package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func gated(p *store.ClaimParams) { p.Gated, p.Seats = true, true }

// gate stores a gate.
func (b bench) gate(g store.Gate) {
	b.t.Helper()
	_, err := b.SetGate(b.t.Context(), g, store.By{Actor: "test"})
	require.NoError(b.t, err)
}

// of inserts an instance with the label customer.
func (b bench) of(customer string, more columns) int64 {
	return b.insert(columns{"fsm": `'m'`, "step": `'s'`, "labels": `'{"customer": "` + customer + `"}'`}.with(more))
}

// lineUp inserts instances with the label customer in line at perCustomer, the first one first.
func (b bench) lineUp(customer string, n int, more columns) (ids []int64) {
	for i := range n {
		ids = append(ids, b.of(customer, columns{"pick_lane": `3`, "gate": quote(perCustomer.Name + "/" + customer),
			"eligible_at": fmt.Sprintf("now() - interval '1 h' + interval '%d s'", i)}.with(more)))
	}
	return ids
}

// placed returns gate, place and lane of an instance.
func (b bench) placed(id int64) string {
	return b.text(`SELECT concat_ws(' ', coalesce(gate, '-'), coalesce(place::text, '-'), pick_lane) FROM gendurable.gen_durable WHERE id = $1`, id)
}

// perKey counts claims by gate.
func perKey(claims []*step.Claim) map[string]int {
	n := map[string]int{}
	for _, c := range claims {
		n[c.Labels["customer"]]++
	}
	return n
}

var perCustomer = store.Gate{Name: "per-customer", Label: "customer", Places: 2, Total: store.NoBound}

// From the front an instance goes in line, and from there a claim takes it, with a place. Its end
// makes the place free. Nobody else notices.
func TestAnInstanceGoesThroughItsGate(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	acme := []int64{b.of("acme", nil), b.of("acme", nil), b.of("acme", nil)}
	zoo, free := b.of("zoo", nil), b.runnableOne()

	got := b.claim(gated)
	require.Equal(t, []int64{free}, ids(got.Claims))
	require.Empty(t, got.Claims[0].Gate)
	require.Equal(t, 4, got.Moved)
	require.Equal(t, "per-customer/acme - 3", b.placed(acme[0]))

	got = b.claim(gated)
	require.Zero(t, got.Moved)
	require.ElementsMatch(t, []int64{acme[0], acme[1], zoo}, ids(got.Claims))
	for _, c := range got.Claims {
		require.True(t, strings.HasPrefix(c.Gate, "per-customer/"), c.Gate)
	}
	require.Equal(t, "per-customer/acme 2 0", b.placed(acme[1]))
	claims := got.Claims
	got = b.claim(gated)
	require.Empty(t, got.Claims)
	require.True(t, got.Crowded)

	first := claims[slices.IndexFunc(claims, func(c *step.Claim) bool { return c.ID == acme[0] })]
	b.finish(first)
	require.Equal(t, "- - 0", b.placed(acme[0]))
	require.Equal(t, []int64{acme[2]}, ids(b.claim(gated).Claims))
	require.Equal(t, "per-customer/acme 1 0", b.placed(acme[2]))
	counts, err := b.Gates(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.GateCount{{Gate: perCustomer, Taken: 3, Values: 2}}, counts)
}

func (b bench) runnableOne() int64 { return b.insert(columns{"fsm": `'m'`, "step": `'s'`}) }

// Go decides as SQL does to which gate an instance belongs.
func TestTheNarrowestGateCounts(t *testing.T) {
	b := newBench(t)
	gates := store.Gates{
		{Name: "all", Places: 1, Total: store.NoBound}, {Name: "queue", Queue: "q", CostLabel: "c", Places: 1, Total: store.NoBound}, {Name: "value", Label: "customer", Places: 1, Total: store.NoBound},
		{Name: "value-of-q", Label: "customer", Queue: "q", Places: 1, Total: store.NoBound}, {Name: "machine", Machine: "m", Places: 1, Total: store.NoBound},
		{Name: "machine-2", Machine: "m", Places: 1, Total: store.NoBound}, {Name: "machine-value", Machine: "m", Label: "customer", Places: 1, Total: store.NoBound},
		{Name: "run", Label: "other", Run: true, Places: 1, Total: store.NoBound}, {Name: "ceiling", Queue: "q", Places: 1, Total: store.NoBound},
		{Name: "step", Machine: "m", Step: "s", Places: 1, Total: store.NoBound}, {Name: "elsewhere", Machine: "x", Step: "s", Label: "customer", Places: 1, Total: store.NoBound},
	}
	names := map[string]int{}
	for n := len(gates); n >= 0; n-- {
		b.exec(`DELETE FROM gendurable.gates`)
		for _, g := range gates[:n] {
			b.gate(g)
		}
		for _, in := range []string{"q", "r"} {
			for _, machine := range []string{"m", "o"} {
				for _, step := range []string{"s", "t"} {
					for _, labels := range []map[string]string{nil, {"other": "x"}, {"customer": "a/b"}, {"customer": strings.Repeat("ä", 300)}} {
						b.exec(`DELETE FROM gendurable.gen_durable`)
						text, err := json.Marshal(labels)
						require.NoError(t, err)
						id := b.insert(columns{"queue": quote(in), "fsm": quote(machine), "step": quote(step), "labels": "nullif(" + quote(string(text)) + ", 'null')::jsonb"})
						b.claim(gated, queue(in), knowing("m/1", "o/1"))
						want := gates[:n].Of(in, machine, step, labels, false)
						names[strings.Split(want, "/")[0]]++
						require.Equal(t, want, b.text(`SELECT coalesce(gate, '') FROM gendurable.gen_durable WHERE id = $1`, id))
					}
				}
			}
		}
	}
	for _, g := range append(gates, store.Gate{}) {
		if g.Name != "elsewhere" && g.Name != "machine-2" && g.Name != "ceiling" {
			require.Positive(t, names[g.Name], g.Name)
		}
	}
}

// Claims that meet at a gate leave it to the one that has it, and say so. Another gate is not
// concerned.
func TestOneClaimAtATimeAdmits(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	b.gate(store.Gate{Name: "other", Machine: "o", Places: 1, Total: store.NoBound})
	b.lineUp("acme", 3, nil)
	other := b.insert(columns{"fsm": `'o'`, "step": `'s'`, "gate": `'other'`, "pick_lane": `3`})
	front := b.runnableOne()
	beside := b.begin()
	b.inTx(beside, `SELECT pg_advisory_xact_lock(hashtextextended('gendurable gate per-customer of gendurable', 0))`)
	got := b.claim(gated, knowing("m/1", "o/1"))
	require.True(t, got.Busy)
	require.ElementsMatch(t, []int64{other, front}, ids(got.Claims))
	require.NoError(t, beside.Commit(t.Context()))
	got = b.claim(gated, knowing("m/1", "o/1"))
	require.False(t, got.Busy)
	require.Len(t, got.Claims, 2)
}

// Many claims at once, of several workers and two queues, never give more places than there are,
// and lose nothing. Without the lock, or with a count that is older than it, the unique index
// refuses a claim.
func TestManyClaimsAtOneGate(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: perCustomer.Name, Label: "customer", Places: 2, Total: 7})
	for _, in := range []string{"default", "other"} {
		for c := range 5 {
			b.lineUp(fmt.Sprint("c", c), 12, columns{"queue": quote(in)})
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	left, most := 120, 0
	for n := range 6 {
		all.Go(func() {
			turn := store.Turn{}
			for {
				mu.Lock()
				done := left == 0
				mu.Unlock()
				if done || t.Context().Err() != nil {
					return
				}
				got := b.claim(gated, queue([]string{"default", "other"}[n%2]), func(p *store.ClaimParams) { p.Lines = turn })
				turn = got.Turn
				taken := b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE place IS NOT NULL`)
				mu.Lock()
				most, left = max(most, taken), left-len(got.Claims)
				mu.Unlock()
				for _, c := range got.Claims {
					b.finish(c)
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most, 7)
	require.Equal(t, 120, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done'`))
}

// A place that foreign SQL gives twice is refused by the index, and the claim is tried again.
func TestAPlaceIsNotGivenTwice(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	acme := b.lineUp("acme", 1, nil)[0]
	beside := b.begin()
	b.inTx(beside, `INSERT INTO gendurable.gen_durable (fsm, step, queue, gate, place) VALUES ('m', 's', 'elsewhere', 'per-customer/acme', 1)`)
	failed := make(chan error, 1)
	go func() {
		_, err := b.Claim(t.Context(), store.ClaimParams{Queue: "default", Worker: me, Machines: []string{"m/1"}, Limit: 10, Window: 10, Lease: lease, Gated: true})
		failed <- err
	}()
	b.waiting(1)
	require.NoError(t, beside.Commit(t.Context()))
	require.True(t, store.IsUniqueViolation(<-failed))
	b.claim(gated)
	require.Equal(t, "per-customer/acme 2 0", b.placed(acme))
}

// A session that has the first row in line, or the row of the gate, locked holds up no other row.
func TestAStrangerHoldsTheFirstInLine(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	line := b.lineUp("acme", 3, nil)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, line[0])
	b.inTx(stranger, `SELECT FROM gendurable.gates FOR UPDATE`)
	require.Equal(t, line[1:], ids(b.claim(gated).Claims))
	require.Equal(t, "per-customer/acme 1 0", b.placed(line[1]))
}

// A number that is lowered holds from then on, and one that is raised at once. With none, none
// passes; without a bound, all do.
func TestAGateIsChanged(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	change := func(places int) { g.Places = places; b.gate(g) }
	change(3)
	b.lineUp("acme", 9, nil)
	taken := func() int { return b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE place IS NOT NULL`) }
	claims := b.claim(gated).Claims
	require.Len(t, claims, 3)
	change(1)
	for i, c := range claims {
		require.Empty(t, b.claim(gated).Claims)
		require.Equal(t, 3-i, taken(), "none is given while more are taken than there are")
		b.finish(c)
	}
	claims = b.claim(gated).Claims
	require.Len(t, claims, 1)
	change(0)
	b.finish(claims[0])
	require.Empty(t, b.claim(gated).Claims)
	change(4)
	require.Len(t, b.claim(gated).Claims, 4)
	change(store.NoBound)
	require.Len(t, b.claim(gated).Claims, 1, "all the others")
	require.Equal(t, 4, taken())
}

// A change of a gate waits for the claim under way there.
func TestAGateIsChangedDuringAClaim(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	beside := b.begin()
	b.inTx(beside, `SELECT pg_advisory_xact_lock(hashtextextended('gendurable gate per-customer of gendurable', 0))`)
	done := make(chan error, 1)
	go func() {
		g := perCustomer
		g.Places = 1
		_, err := b.SetGate(t.Context(), g, store.By{Actor: "test"})
		done <- err
	}()
	b.waiting(1)
	require.NoError(t, beside.Commit(t.Context()))
	require.NoError(t, <-done)
}

// A change of a gate that waits for another session that has its row locked holds up no claim
// there.
func TestAStrangerHoldsAGateThatIsChanged(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	b.lineUp("acme", 3, nil)
	beside := b.begin()
	b.inTx(beside, `SELECT FROM gendurable.gates FOR UPDATE`)
	done := make(chan error, 1)
	go func() {
		_, err := b.SetGate(t.Context(), perCustomer, store.By{Actor: "test"})
		done <- err
	}()
	b.waiting(1)
	got := b.claim(gated)
	require.False(t, got.Busy)
	require.Len(t, got.Claims, 2)
	require.NoError(t, beside.Commit(t.Context()))
	require.NoError(t, <-done)
}

// Instances in line at a gate that is dropped, or that concerns others by now, go on without it.
func TestAGateIsDropped(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	b.lineUp("acme", 70, nil)
	running := b.claim(gated).Claims
	require.Len(t, running, 2)
	changed, err := b.DropGate(t.Context(), perCustomer.Name, store.By{Actor: "test"})
	require.NoError(t, err)
	require.True(t, changed)
	n := 0
	for rounds := 0; n < 68; rounds++ {
		require.Less(t, rounds, 5)
		n += len(b.claim(gated, most(50), window(50)).Claims)
	}
	for _, c := range running {
		b.finish(c)
	}
}

// Each way out of the line leaves no trace of the gate.
func TestVerbsLeaveNoPlace(t *testing.T) {
	for _, verb := range []store.Verb{store.Cancel, store.RunNow, store.Reschedule, store.Pause} {
		t.Run(fmt.Sprint(verb), func(t *testing.T) {
			b := newBench(t)
			b.gate(perCustomer)
			id := b.of("acme", nil)
			b.claim(gated)
			order := store.Order{Verb: verb, At: time.Now().Add(time.Hour)}
			if verb == store.RunNow {
				b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() + interval '1 h' WHERE id = $1`, id)
			}
			require.Len(t, b.operate(order, id).Changed, 1)
			require.Equal(t, "- - 0", b.placed(id))
		})
	}
}

// An instance with a partition key gets in line only when it is the head of its key, and those
// behind it come forward when it ends. One that is in line, and no longer the head, goes back.
func TestAGateAndAPartitionKey(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = 1
	b.gate(g)
	var want []int64
	for i := range 6 {
		want = append(want, b.of("acme", columns{"partition_key": quote(fmt.Sprint("k", i%2)), "eligible_at": fmt.Sprintf("now() - interval '%d min'", 10-i)}))
	}
	b.claim(gated)
	want = append([]int64{b.of("acme", columns{"partition_key": `'k0'`, "priority": `-1`})}, want...)
	var got []int64
	for turns := 0; len(got) < len(want); turns++ {
		require.Less(t, turns, 50)
		c := b.claim(gated)
		require.LessOrEqual(t, len(c.Claims), 1)
		for _, one := range c.Claims {
			require.Equal(t, "per-customer/acme", one.Gate)
			got = append(got, one.ID)
			b.finish(one)
		}
	}
	of := func(ids []int64, key string) (out []int64) {
		for _, id := range ids {
			if b.text(`SELECT partition_key FROM gendurable.gen_durable WHERE id = $1`, id) == key {
				out = append(out, id)
			}
		}
		return out
	}
	require.Equal(t, of(want, "k0"), of(got, "k0"))
	require.Equal(t, of(want, "k1"), of(got, "k1"))
}

// A machine that the worker does not know is set aside, and goes in line again once a worker knows
// it.
func TestAnUnknownMachineInLine(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	id := b.lineUp("acme", 1, nil)[0]
	require.Equal(t, 1, b.claim(gated, knowing("other/1")).Left)
	require.Equal(t, "- - 2", b.placed(id))
	b.claim(gated)
	require.Equal(t, []int64{id}, ids(b.claim(gated).Claims))
}

// A process that knows of no gate neither loses nor breaks anything. It only heeds no gate.
func TestAClaimThatKnowsOfNoGate(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	lined, plain := b.lineUp("acme", 1, nil)[0], b.of("acme", nil)
	require.Equal(t, []int64{plain}, ids(b.claim().Claims))
	require.Equal(t, []int64{lined}, ids(b.claim(gated).Claims))
}

// A row that Postgres refuses to change keeps no other row from a line, or from a claim: not in the
// claim that meets it, nor in those after it.
func TestARefusedRowAtAGate(t *testing.T) {
	for _, in := range []string{"front", "line"} {
		t.Run(in, func(t *testing.T) {
			b := newBench(t)
			b.gate(store.Gate{Name: perCustomer.Name, Label: "customer", Places: 1, Total: store.NoBound})
			bad := b.of("bad", columns{"priority": `-1`})
			var want []int64
			for i := range 6 {
				want = append(want, b.of(fmt.Sprint(i), nil))
			}
			if in == "line" {
				b.claim(gated)
			}
			b.refuse(`RAISE 'no'`, bad)
			var refused []store.Refused
			var claimed []int64
			for range 3 {
				got := b.claim(gated, most(10), window(10))
				refused, claimed = append(refused, got.Refused...), append(claimed, ids(got.Claims)...)
			}
			requireRefused(t, []int64{bad}, refused)
			require.ElementsMatch(t, want, claimed)
		})
	}
}
