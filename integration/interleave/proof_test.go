package interleave

import (
	"context"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

// These environment variables configure the suite.
const (
	shareVariable  = "INTERLEAVE_SHARE"  // one schedule in so many runs: 1 runs all of them
	seedVariable   = "INTERLEAVE_SEED"   // selects them; default 1
	ordersVariable = "INTERLEAVE_ORDERS" // if set, orders.txt is written anew
	replayVariable = "INTERLEAVE_REPLAY" // runs only this schedule, with its trace
	worldVariable  = "INTERLEAVE_WORLD"  // runs only this world
	familyVariable = "INTERLEAVE_FAMILY" // runs only pairs with a verb of this family
	partVariable   = "INTERLEAVE_PART"   // runs one part of the pairs, "2/4" say; its parts make the whole
)

// triplesPerPair is the number of schedules of three verbs in the sample for each pair. All orders
// are equally likely.
const triplesPerPair = 3

// fewest is a lower bound of the number of all schedules. A run of a share has at least that share
// of it. A run with fewer has lost its worlds.
const fewest = 10_000

// rigs is the number of rigs that work at a time: one per core of a small machine.
const rigs = 2

// TestEveryInterleaving is the proof: all pairs of all worlds in every order, and a sample of
// triples.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	proof := newProof(t)
	if text := os.Getenv(replayVariable); text != "" {
		s, err := parse(text)
		require.NoError(t, err)
		proof.trace = true
		proof.check(newRig(t), s)
		return
	}
	part, parts := tier.Part(t, partVariable)
	began := time.Now()
	work, done := proof.start()
	for _, w := range worlds() {
		if only := os.Getenv(worldVariable); only != "" && only != w.name {
			continue
		}
		for n, pair := range w.pairs() {
			if only := os.Getenv(familyVariable); only != "" && pair[0].family != only && pair[1].family != only {
				continue
			}
			name := w.name + strconv.Itoa(n)
			if !proof.picked(name, max(1, proof.share/w.sparse())) || number(name)%uint64(parts) != uint64(part) {
				continue
			}
			work <- func(r *rig) { proof.pair(r, &w, pair) }
			for i := range triplesPerPair {
				work <- func(r *rig) { proof.triple(r, &w, pair, n*triplesPerPair+i) }
			}
		}
	}
	done()
	t.Logf("%d schedules of 2 sessions of %d that can be written down, %d of them different in effect, and %d of 3, in %s; %d waited, %d outcomes took the slow lane; seed %d, one in %d",
		proof.two.Load(), proof.all.Load(), proof.different.Load(), proof.three.Load(), time.Since(began).Round(time.Second), proof.waited.Load(), proof.slowed.Load(),
		proof.seed, proof.share)
	tier.Figure(t, "%d schedules", proof.two.Load()+proof.three.Load())
	if os.Getenv(worldVariable)+os.Getenv(familyVariable) == "" {
		require.GreaterOrEqual(t, proof.two.Load()+proof.three.Load(), int64(fewest/proof.share)/int64(parts))
	}
}

// TestNobodyWaitsForAStranger lets every verb that need not wait meet a scheduler while another
// session holds rows for the whole schedule.
func TestNobodyWaitsForAStranger(t *testing.T) {
	t.Parallel()
	proof := newProof(t)
	began := time.Now()
	work, done := proof.start()
	for _, w := range worlds() {
		if only := os.Getenv(worldVariable); only != "" && only != w.name {
			continue
		}
		for n, v := range w.verbs {
			if only := os.Getenv(familyVariable); only != "" && v.family != only {
				continue
			}
			for _, held := range slices.Sorted(maps.Keys(holdings)) {
				if mayRun(&w, v, held) && proof.picked(w.name+v.name+held, proof.share) {
					work <- func(r *rig) { proof.held(r, &w, v, held, n) }
				}
			}
		}
	}
	done()
	tier.Figure(t, "%d schedules beside a stranger", proof.strangers.Load())
	t.Logf("%d schedules beside a stranger in %s; seed %d, one in %d", proof.strangers.Load(), time.Since(began).Round(time.Second), proof.seed, proof.share)
}

// newProof returns a proof that the environment configures.
func newProof(t *testing.T) *proof {
	t.Helper()
	return &proof{t: t, share: uint64(tier.Size(t, shareVariable, 1600, 1200, 1)), seed: uint64(tier.Size(t, seedVariable, 1, 1, 1))}
}

// start starts the rigs, which do the work sent to them. done waits until all of it is done.
func (p *proof) start() (work chan<- func(*rig), done func()) {
	jobs := make(chan func(*rig))
	var group sync.WaitGroup
	for range rigs {
		r := newRig(p.t)
		group.Go(func() {
			for do := range jobs {
				do(r)
			}
		})
	}
	return jobs, func() {
		close(jobs)
		group.Wait()
	}
}

// proof runs schedules and counts them. It is safe for concurrent use.
type proof struct {
	t           *testing.T
	share, seed uint64
	trace       bool
	mutant      bool        // the run looks for broken invariants
	stuck       atomic.Bool // a schedule of such a run came to no end

	all, two, three, strangers, different, waited, slowed, failed atomic.Int64
}

// mostFailures bounds the failures that are reported in full, since one bug makes thousands.
const mostFailures = 25

func (p *proof) check(r *rig, s schedule) *verdict {
	v, err := r.play(context.Background(), s)
	if p.mutant {
		if err != nil {
			p.stuck.Store(true)
		}
		return v
	}
	if err != nil {
		p.t.Errorf("%v", err)
		return nil
	}
	if v.waitings > 0 {
		p.waited.Add(1)
	}
	p.slowed.Add(int64(v.slowed))
	if p.trace {
		p.t.Logf("%s\n%s", s, strings.Join(v.trace, "\n"))
	}
	if len(v.broken) > 0 && p.failed.Add(1) <= mostFailures {
		p.t.Errorf("%s\n  %s\nrerun with %s='%s'\n%s", s, strings.Join(v.broken, "\n  "), replayVariable, s, strings.Join(v.trace, "\n"))
	}
	return v
}

// turns finds out how many turns each session takes: the most that it takes when the others have
// gone before, or come after.
func (p *proof) turns(r *rig, w *world, verbs []verb) []int {
	most := make([]int, len(verbs))
	for first := range verbs {
		order := strings.Repeat(names[first:first+1], 50)
		v := p.check(r, schedule{world: w, verbs: verbs, order: order})
		if v == nil {
			return most
		}
		for i, n := range v.counts {
			most[i] = max(most[i], n, verbs[i].turns)
		}
	}
	return most
}

func (p *proof) pair(r *rig, w *world, verbs []verb) {
	effects, dead := map[string]bool{}, map[string]bool{}
	turns := p.turns(r, w, verbs)
	share := min(p.share, w.sparse())
	if p.share > sparse {
		share = max(share, ordersOf(turns)/mostOrders)
	}
	orders(turns, func(order string) {
		s := schedule{world: w, verbs: verbs, order: order}
		p.all.Add(1)
		if !p.picked(s.String(), share) || begins(order, dead) {
			return
		}
		p.two.Add(1)
		if v := p.check(r, s); v != nil {
			effects[v.effect] = true
			for _, d := range v.dead {
				dead[d] = true
			}
		}
	})
	p.different.Add(int64(len(effects)))
}

func begins(order string, prefixes map[string]bool) bool {
	for n := range order {
		if prefixes[order[:n+1]] {
			return true
		}
	}
	return false
}

// mostOrders bounds how many orders of one pair run, about, where less than a third of all do: two
// verbs of nine turns have 48,620.
const mostOrders = 64

// ordersOf returns the number of orders of two sessions that take so many turns.
func ordersOf(turns []int) uint64 {
	n := uint64(1)
	for i := range turns[1] {
		n = n * uint64(turns[0]+i+1) / uint64(i+1)
	}
	return n
}

// sparse is the share up to which every pair runs, in some of its orders. A smaller share leaves
// out pairs, since a pair costs two schedules before the first of its orders is known.
const sparse = 3

// sparse is likewise the share of a world. Claims at gates have many orders.
func (w *world) sparse() uint64 {
	if w.heeds {
		return 8
	}
	return sparse
}

// picked reports whether something is in a share of this run.
func (p *proof) picked(what string, share uint64) bool {
	return number(strconv.FormatUint(p.seed, 10)+what)%share == 0
}

// number returns a number that a text always has, and that others hardly share.
func number(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// held plays a verb beside a scheduler while another session holds something.
func (p *proof) held(r *rig, w *world, v verb, held string, n int) {
	for _, order := range p.heldOrders(n) {
		p.strangers.Add(1)
		p.check(r, schedule{world: w, verbs: []verb{v, drains()}, order: order, held: held})
	}
}

func (p *proof) random(n int) *rand.Rand { return rand.New(rand.NewPCG(p.seed, uint64(n))) }

// triple adds a third verb to a pair, in a random order.
func (p *proof) triple(r *rig, w *world, pair []verb, n int) {
	if uint64(n)%min(p.share, sparse) != p.seed%min(p.share, sparse) {
		return
	}
	random := p.random(n)
	verbs := append(append([]verb{}, pair...), w.verbs[random.IntN(len(w.verbs))])
	p.three.Add(1)
	p.check(r, schedule{world: w, verbs: verbs, order: anyOrder(random, []int{5, 5, 5})})
}
