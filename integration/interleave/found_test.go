package interleave

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// foundFile has, for each mutant, an order that violated its invariant. Only the proof looks
// through all orders; the smaller tiers try this one first.
const foundFile = "orders.txt"

// enough is a number of orders of three sessions that contains those in which chance lets two of
// them collide.
const enough = 300

func everyMutant() []mutant {
	return slices.Concat(mutants, versionMutants, historyMutants, keptMutants, lookMutants, enteredMutants, wokenMutants, gateMutants, familyMutants, callMutants,
		streamMutants, restartMutants, extendedMutants)
}

func TestEveryMutantIsFound(t *testing.T) {
	tier.Needs(t, tier.CI) // it shows that the other tests of this package can fail
	t.Parallel()
	pgtest.PlainOnly(t, "mutants replace words of the texts for plain Postgres")
	known, found := foundOrders(t), map[string]string{}
	outer, r := t, newRig(t)
	all := everyMutant()
	for i, m := range all {
		t.Run(m.name, func(t *testing.T) {
			if i%6 > 0 && os.Getenv(ordersVariable) == "" {
				tier.Needs(t, tier.Proof)
			}
			r.breaks(&m)
			h := hunt{proof: &proof{t: t, seed: 1, mutant: true}, rig: r, mutant: &m}
			if order := known[m.name]; order == "" || !h.finds(order) {
				h.search()
			}
			mutated := r.mutated.Load()
			if h.proof.stuck.Load() { // some session may still be on its way
				r = newRig(outer)
			}
			require.True(t, mutated, "the mutant changed nothing: the statement has another text now")
			require.NotEmpty(t, h.found, "not found in %d orders", h.played)
			found[m.name] = h.found
			t.Logf("found %q after %d orders, in %s", m.invariant, h.played, h.found)
		})
	}
	tier.Figure(t, "%d mutants", len(found))
	if os.Getenv(ordersVariable) != "" && !t.Failed() && len(found) == len(all) {
		writeOrders(t, found)
	}
}

// hunt looks for an order in which a mutant violates its invariant.
type hunt struct {
	proof  *proof
	rig    *rig
	mutant *mutant
	found  string
	played int
}

// finds plays one order, and reports whether it violates the invariant.
func (h *hunt) finds(order string) bool {
	h.proof.t.Helper()
	s := h.scenario()
	s.order = order
	v := h.proof.check(h.rig, s)
	h.played++
	if v != nil && slices.ContainsFunc(v.broken, func(b string) bool { return strings.Contains(b, h.mutant.invariant) }) {
		h.found = order
	}
	return h.found != ""
}

func (h *hunt) scenario() schedule {
	h.proof.t.Helper()
	name := h.mutant.scenario
	if !strings.Contains(name, "//") {
		name += "/"
	}
	s, err := parse(name)
	require.NoError(h.proof.t, err)
	return s
}

// search plays all orders of two sessions, or enough of three.
func (h *hunt) search() {
	h.proof.t.Helper()
	s := h.scenario()
	turns := h.proof.turns(h.rig, s.world, s.verbs)
	if len(s.verbs) == 2 {
		orders(turns, func(order string) {
			if h.found == "" {
				h.finds(order)
			}
		})
		return
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range enough {
		if h.finds(anyOrder(random, turns)) {
			return
		}
	}
}

// foundOrders returns the orders of the file by the names of their mutants: none in the proof.
func foundOrders(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	if tier.Long() || os.Getenv(ordersVariable) != "" {
		return known
	}
	file, err := os.Open(foundFile)
	require.NoError(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		order, name, ok := strings.Cut(lines.Text(), " ")
		require.True(t, ok, "%s: %q", foundFile, lines.Text())
		known[name] = order
	}
	require.NoError(t, lines.Err())
	return known
}

func writeOrders(t *testing.T, found map[string]string) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintln(&b, found[name], name)
	}
	require.NoError(t, os.WriteFile(foundFile, []byte(b.String()), 0o600))
}
