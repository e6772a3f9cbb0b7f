package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func gated(p *store.ClaimParams) { p.Gated = true }

// gate stores a gate.
func (b bench) gate(g store.Gate) {
	b.t.Helper()
	_, err := b.SetGate(b.t.Context(), g, store.By{Actor: "test"})
	require.NoError(b.t, err)
}

// admit admits instances of the queue "default" at gates.
func (b bench) admit(gates ...string) store.Promotion {
	b.t.Helper()
	p, err := b.Admit(b.t.Context(), gates, make([]bool, len(gates)), []string{"default"})
	require.NoError(b.t, err)
	return p
}

// of inserts an instance with the label customer.
func (b bench) of(customer string, more columns) int64 {
	return b.insert(columns{"fsm": `'m'`, "step": `'s'`, "labels": `'{"customer": "` + customer + `"}'`}.with(more))
}

// placed returns gate, place and lane of an instance.
func (b bench) placed(id int64) string {
	return b.text(`SELECT concat_ws(' ', coalesce(gate, '-'), coalesce(place::text, '-'), pick_lane) FROM gendurable.gen_durable WHERE id = $1`, id)
}

var perCustomer = store.Gate{Name: "per-customer", Label: "customer", Places: 2, Total: store.NoBound}

// From the front an instance goes in line, from there in front again with a place, and its end
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
	require.ElementsMatch(t, []string{"per-customer/acme", "per-customer/zoo"}, got.Lines)
	require.Empty(t, b.claim(gated).Claims)
	require.Equal(t, "per-customer/acme - 3", b.placed(acme[0]))

	require.Equal(t, store.Promotion{Queues: []string{"default", "default"}}, b.admit(got.Lines...))
	require.Empty(t, b.admit(got.Lines...), "there is nothing more to give")
	require.Equal(t, "per-customer/acme 2 0", b.placed(acme[1]))
	claims := b.claim(gated).Claims
	require.ElementsMatch(t, []int64{acme[0], acme[1], zoo}, ids(claims))
	for _, c := range claims {
		require.True(t, strings.HasPrefix(c.Gate, "per-customer/"), c.Gate)
	}
	require.Empty(t, b.claim(gated).Moved)

	first := claims[slices.IndexFunc(claims, func(c *step.Claim) bool { return c.ID == acme[0] })]
	b.finish(first)
	require.Equal(t, "- - 0", b.placed(acme[0]))
	_, open, err := b.Lines(t.Context(), "", 10, lease)
	require.NoError(t, err)
	require.Equal(t, []string{"per-customer/acme"}, open)
	require.Equal(t, []string{"default"}, b.admit("per-customer/acme").Queues)
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
		{Name: "all", Places: 1, Total: store.NoBound}, {Name: "queue", Queue: "q", Places: 1, Total: store.NoBound}, {Name: "value", Label: "customer", Places: 1, Total: store.NoBound},
		{Name: "value-of-q", Label: "customer", Queue: "q", Places: 1, Total: store.NoBound}, {Name: "machine", Machine: "m", Places: 1, Total: store.NoBound},
		{Name: "machine-2", Machine: "m", Places: 1, Total: store.NoBound}, {Name: "machine-value", Machine: "m", Label: "customer", Places: 1, Total: store.NoBound},
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
						want := gates[:n].Of(in, machine, step, labels)
						names[strings.Split(want, "/")[0]]++
						require.Equal(t, want, b.text(`SELECT coalesce(gate, '') FROM gendurable.gen_durable WHERE id = $1`, id))
					}
				}
			}
		}
	}
	for _, g := range append(gates, store.Gate{}) {
		if g.Name != "elsewhere" && g.Name != "machine-2" {
			require.Positive(t, names[g.Name], g.Name)
		}
	}
}

// A second Admit beside one that has not committed leaves the gate alone, and reports it.
func TestAdmitBesideAdmit(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	first, second := b.of("acme", nil), b.of("acme", nil)
	b.claim(gated)
	beside := b.begin()
	b.inTx(beside, `UPDATE gendurable.gen_durable SET pick_lane = 0, place = 1 WHERE id = $1`, first)
	require.Equal(t, store.Promotion{Missed: []string{"per-customer/acme"}}, b.admit("per-customer/acme"))
	require.Equal(t, "per-customer/acme - 3", b.placed(second))
	require.NoError(t, beside.Commit(t.Context()))
	require.Equal(t, []string{"default"}, b.admit("per-customer/acme").Queues)
	require.Equal(t, "per-customer/acme 2 0", b.placed(second))
}

// Where two have given the same place after all, the index refuses the later one. Then each gate is
// tried by itself, and if there is only one, the caller tries it again.
func TestAPlaceIsNotGivenTwice(t *testing.T) {
	for name, gates := range map[string][]string{"one": {"per-customer/acme"}, "two": {"per-customer/acme", "per-customer/zoo"}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.gate(perCustomer)
			acme := b.of("acme", nil)
			b.of("zoo", nil)
			b.claim(gated)
			beside := b.begin()
			b.inTx(beside, `INSERT INTO gendurable.gen_durable (fsm, step, gate, place) VALUES ('m', 's', 'per-customer/acme', 1)`)
			done := make(chan store.Promotion, 1)
			go func() { done <- b.admit(gates...) }()
			b.waiting(1)
			require.NoError(t, beside.Commit(t.Context()))
			if got := <-done; len(gates) == 1 {
				require.Equal(t, store.Promotion{Missed: gates}, got)
				b.admit(gates...)
			}
			require.Equal(t, "per-customer/acme 2 0", b.placed(acme))
		})
	}
}

// A stranger that has the first row in line locked holds up nobody else.
func TestAStrangerHoldsTheFirstInLine(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	first, second := b.of("acme", nil), b.of("acme", nil)
	b.claim(gated)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, first)
	require.Equal(t, []string{"per-customer/acme"}, b.admit("per-customer/acme").Missed)
	got, err := b.Admit(t.Context(), []string{"per-customer/acme"}, []bool{true}, []string{"default"})
	require.NoError(t, err)
	require.Equal(t, store.Promotion{Queues: []string{"default"}}, got)
	require.Equal(t, "per-customer/acme 1 0", b.placed(second))
}

// A number that is lowered holds from then on, and one that is raised at once. With none, nobody
// passes.
func TestAGateIsChanged(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = 3
	b.gate(g)
	for range 8 {
		b.of("acme", nil)
	}
	taken := func() int { return b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE place IS NOT NULL`) }
	b.claim(gated)
	b.admit("per-customer/acme")
	claims := b.claim(gated).Claims
	require.Len(t, claims, 3)
	g.Places = 1
	b.gate(g)
	for i, c := range claims {
		b.admit("per-customer/acme")
		require.Equal(t, 3-i, taken(), "none is given while more are taken than there are")
		b.finish(c)
	}
	b.admit("per-customer/acme")
	require.Equal(t, 1, taken())
	g.Places = 0
	b.gate(g)
	b.finish(b.claim(gated).Claims[0])
	b.admit("per-customer/acme")
	require.Zero(t, taken())
	g.Places = 10
	b.gate(g)
	b.admit("per-customer/acme")
	require.Equal(t, 4, taken(), "all the others")
}

// Instances in line at a gate that is dropped, or that concerns others by now, go on without it.
func TestAGateIsDropped(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = 1
	b.gate(g)
	running := b.of("acme", nil)
	for range 700 {
		b.of("acme", nil)
	}
	b.claim(gated, most(1000), window(1000))
	b.admit("per-customer/acme")
	c := b.claim(gated).Claims[0]
	require.Equal(t, running, c.ID)
	changed, err := b.DropGate(t.Context(), g.Name, store.By{Actor: "test"})
	require.NoError(t, err)
	require.True(t, changed)
	_, open, err := b.Lines(t.Context(), "", 10, lease)
	require.NoError(t, err)
	require.Equal(t, []string{"per-customer/acme"}, open)
	rounds := 0
	for missed := open; len(missed) > 0; rounds++ {
		missed = b.admit(missed...).Missed
	}
	require.Equal(t, 3, rounds, "500 at a time, and one to see that it is over")
	require.Equal(t, 700, len(b.claim(most(1000), window(1000)).Claims))
	b.finish(c)
	_, open, err = b.Lines(t.Context(), "", 10, lease)
	require.NoError(t, err)
	require.Empty(t, open)
}

// Whatever takes an instance out of the line, or away from its place, leaves no trace of the gate.
func TestVerbsLeaveNoPlace(t *testing.T) {
	for _, verb := range []store.Verb{store.Cancel, store.RunNow, store.Reschedule, store.Pause} {
		for _, in := range []string{"line", "front"} {
			t.Run(fmt.Sprint(verb, " in ", in), func(t *testing.T) {
				b := newBench(t)
				b.gate(perCustomer)
				id := b.of("acme", nil)
				b.claim(gated)
				if in == "front" {
					b.admit("per-customer/acme")
				}
				order := store.Order{Verb: verb, At: time.Now().Add(time.Hour)}
				if verb == store.RunNow {
					b.exec(`UPDATE gendurable.gen_durable SET eligible_at = now() + interval '1 h' WHERE id = $1`, id)
				}
				require.Len(t, b.operate(order, id).Changed, 1)
				require.Equal(t, "- - 0", b.placed(id))
			})
		}
	}
}

// An instance with a partition key gets in line only when it is the head of its key, and those
// behind it come forward when it ends. Neither of the two orders stands in the other's way.
func TestAGateAndAPartitionKey(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = 1
	b.gate(g)
	var want []int64
	for i := range 6 {
		want = append(want, b.of("acme", columns{"partition_key": quote(fmt.Sprint("k", i%2)), "eligible_at": fmt.Sprintf("now() - interval '%d min'", 10-i)}))
	}
	var got []int64
	for turns := 0; len(got) < len(want); turns++ {
		require.Less(t, turns, 50)
		c := b.claim(gated)
		b.admit("per-customer/acme")
		require.LessOrEqual(t, len(c.Claims), 1)
		for _, one := range c.Claims {
			got = append(got, one.ID)
			b.finish(one)
		}
	}
	require.Equal(t, want, got)
}

// An instance that is not the head of its key loses a place that it has, so that the head gets it.
func TestAPlaceBehindAPartitionKeyIsGivenBack(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = 1
	b.gate(g)
	first := b.of("acme", columns{"partition_key": `'k'`, "priority": `-1`})
	second := b.of("acme", columns{"partition_key": `'k'`, "gate": `'per-customer/acme'`, "place": `1`})
	got := b.claim(gated)
	require.Empty(t, got.Claims)
	require.Equal(t, []string{"per-customer/acme"}, got.Lines)
	require.Equal(t, "- - 1", b.placed(second))
	b.admit("per-customer/acme")
	require.Equal(t, []int64{first}, ids(b.claim(gated).Claims))
}

// A machine that the worker does not know takes no place with it.
func TestAPlaceOfAnUnknownMachineIsGivenBack(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	id := b.of("acme", columns{"gate": `'per-customer/acme'`, "place": `1`})
	got := b.claim(gated, knowing("other/1"))
	require.Equal(t, []string{"per-customer/acme"}, got.Lines)
	require.Equal(t, "- - 2", b.placed(id))
	b.claim(gated)
	require.Equal(t, "per-customer/acme - 3", b.placed(id))
}

// A place that nobody uses, since the queue is paused or has no worker, goes to another in line.
func TestAnUnusedPlaceIsWithdrawn(t *testing.T) {
	b := newBench(t)
	g := perCustomer
	g.Places = 1
	b.gate(g)
	idle := b.of("acme", columns{"queue": `'idle'`, "gate": `'per-customer/acme'`, "place": `1`, "updated_at": `now() - interval '6 s'`})
	waits := b.of("acme", nil)
	b.claim(gated)
	require.Empty(t, b.admit("per-customer/acme"))
	_, open, err := b.Lines(t.Context(), "", 10, 7*time.Second)
	require.NoError(t, err)
	require.Empty(t, open, "not before its time")
	_, open, err = b.Lines(t.Context(), "", 10, 5*time.Second)
	require.NoError(t, err)
	require.Equal(t, []string{"per-customer/acme"}, open)
	require.Equal(t, "per-customer/acme - 3", b.placed(idle))
	b.admit("per-customer/acme")
	require.Equal(t, "per-customer/acme 1 0", b.placed(waits))
}

// A process that knows of no gate neither loses nor breaks anything. It only heeds no gate.
func TestAClaimThatKnowsOfNoGate(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	placed, plain := b.of("acme", nil), b.of("acme", nil)
	b.exec(`UPDATE gendurable.gen_durable SET gate = 'per-customer/acme', place = 2 WHERE id = $1`, placed)
	claims := b.claim().Claims
	require.Equal(t, []int64{placed, plain}, ids(claims))
	require.Equal(t, "per-customer/acme 2 0", b.placed(placed))
	b.finish(claims[0])
	require.Equal(t, "- - 0", b.placed(placed))
}

// A row that Postgres refuses to change keeps nobody else from a line, from a place or from a
// claim: not in the claim that meets it, nor in those after it.
func TestARefusedRowAtAGate(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "each", Label: "customer", Places: 1, Total: store.NoBound})
	bad := b.of("bad", columns{"priority": `-1`})
	var want []int64
	for i := range 6 {
		want = append(want, b.of(fmt.Sprint(i), nil))
	}
	b.refuse(`RAISE 'no'`, bad)
	var lines []string
	var refused []store.Refused
	for range 3 {
		got := b.claim(gated, most(10), window(10))
		require.Empty(t, got.Claims)
		lines, refused = append(lines, got.Lines...), append(refused, got.Refused...)
	}
	requireRefused(t, []int64{bad}, refused)
	require.Len(t, lines, 6)
	b.refuse("NULL")
	b.exec(`UPDATE gendurable.gen_durable SET gate = 'each/bad', pick_lane = 3 WHERE id = $1`, bad)
	b.refuse(`RAISE 'no'`, bad)
	p, err := b.Admit(t.Context(), append(lines, "each/bad"), make([]bool, 7), []string{"default"})
	require.NoError(t, err)
	require.Len(t, p.Refused, 1)
	require.Equal(t, "each/bad", p.Refused[0].Key)
	require.ElementsMatch(t, want, ids(b.claim(gated).Claims))
}
