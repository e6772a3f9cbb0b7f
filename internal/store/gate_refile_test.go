package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// refile goes through all lines, a page of so many rows at a time, and returns the queues in which
// it has moved rows.
func (b bench) refile(most int) (queues []string) {
	b.t.Helper()
	var at store.Filed
	for more := true; more; {
		moved, some, err := b.Refile(b.t.Context(), &at, most)
		require.NoError(b.t, err)
		queues, more = append(queues, moved...), some
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// Instances in line at a gate that is closed, full, or gone from them are brought to the right line
// when a narrower gate is stored, or theirs concerns others, at any place in line. The others stay.
func TestRefile(t *testing.T) {
	for _, page := range []int{1, 3, 7, 1000} {
		t.Run(fmt.Sprint(page), func(t *testing.T) {
			b := newBench(t)
			g := store.Gate{Name: perCustomer.Name, Label: "customer", Places: 0, Total: store.NoBound}
			b.gate(g)
			var acme, other, slow []int64
			for _, in := range []string{"default", "a", "z"} {
				for _, customer := range []string{"acme", "acme/x", "zoo", "Ä"} {
					for n := range 3 {
						ids := b.lineUp(customer, 2, columns{"queue": quote(in), "priority": fmt.Sprint(n - 1)})
						acme = append(acme, ids...)
					}
				}
				other = append(other, b.lineUp("acme", 2, columns{"queue": quote(in), "fsm": `'o'`})...)
				slow = append(slow, b.lineUp("acme", 1, columns{"queue": quote(in), "step": `'slow'`})...)
			}
			keyed := b.lineUp("acme", 1, columns{"partition_key": `'k'`})[0]
			run := b.lineUp("zoo", 1, columns{"run_gate": `'run/zoo'`, "run_place": `1`})[0]
			where := func(id int64) string { return b.placed(id) }

			require.Empty(t, b.refile(page), "nothing is wrong")
			b.gate(store.Gate{Name: "m", Machine: "m", Places: 0, Total: store.NoBound})
			b.gate(store.Gate{Name: "slow", Machine: "m", Step: "slow", Places: 1, Total: store.NoBound})
			stranger := b.begin()
			b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, acme[5])
			require.Equal(t, []string{"a", "default", "z"}, b.refile(page))
			require.Equal(t, "per-customer/acme - 3", where(acme[5]), "a stranger has it locked")
			require.NoError(t, stranger.Rollback(t.Context()))
			require.Equal(t, []string{"default"}, b.refile(page))
			for _, id := range append(acme, keyed, run) {
				require.Equal(t, "m - 3", where(id))
			}
			for _, id := range slow {
				require.Equal(t, "slow - 3", where(id))
			}
			for _, id := range other {
				require.Equal(t, "per-customer/acme - 3", where(id))
			}
			require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE run_gate = 'run/zoo' AND run_place = 1`))
			require.Equal(t, slow[:1], ids(b.claim(gated).Claims), "the others are behind closed gates")

			g.Machine = "none"
			b.gate(g)
			require.Equal(t, []string{"a", "default", "z"}, b.refile(page))
			for _, id := range other {
				require.Equal(t, "- - 0", where(id), "no gate concerns it any more")
			}
			require.Empty(t, b.refile(page))
		})
	}
}

// A row that a claim takes from its line while a page is read is left to it, whichever commits
// first.
func TestRefileBesideAClaim(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	line := b.lineUp("acme", 3, nil)
	b.gate(store.Gate{Name: "m", Machine: "m", Places: 1, Total: store.NoBound})
	claim := b.begin() // as a claim by the old gates would have
	b.inTx(claim, `UPDATE gendurable.gen_durable SET status = 'executing', pick_lane = 0, place = 1, locked_by = 'w', lease_expires_at = now() + interval '1 h' WHERE id = $1`, line[0])
	require.Equal(t, []string{"default"}, b.refile(100))
	require.NoError(t, claim.Commit(t.Context()))
	require.Equal(t, "per-customer/acme 1 0", b.placed(line[0]))
	require.Empty(t, b.refile(100))
	require.Equal(t, "per-customer/acme 1 0", b.placed(line[0]))
	require.Equal(t, line[1:2], ids(b.claim(gated).Claims))
	require.Equal(t, "m 1 0", b.placed(line[1]))
	require.Equal(t, "m - 3", b.placed(line[2]))
}

// Only gates that concern others than before make a process go through the lines.
func TestGatesRegroup(t *testing.T) {
	old := store.Gates{{Name: "a", Label: "customer", Places: 1}, {Name: "b", Machine: "m", Places: 1}}
	with := func(g store.Gate) store.Gates { return append(slices.Clone(old[:1]), g) }
	require.False(t, old.Regroups(old))
	require.False(t, old[:1].Regroups(old), "a claim lets those go whose gate is gone")
	require.False(t, with(store.Gate{Name: "b", Machine: "m", Places: 7, Rate: store.Rate{N: 1}, CostLabel: "c", Adapt: true, Total: 3}).Regroups(old))
	for _, g := range []store.Gate{{Name: "c", Machine: "m", Places: 1}, {Name: "b", Places: 1}, {Name: "b", Machine: "m", Run: true, Places: 1}, {Name: "b", Queue: "q", Places: 1}} {
		require.True(t, with(g).Regroups(old), "%+v", g)
	}
	queue := store.Gates{{Name: "q", Queue: "q", Places: 1}}
	require.True(t, store.Gates{{Name: "q", Queue: "q", Places: 1, CostLabel: "c"}}.Regroups(queue), "it is not the queue's any more")
}
