package pairs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

func TestMain(m *testing.M) { pgtest.NoLeaks(m) }

// chosen returns what an environment variable lists, or all.
func chosen(variable string, all []string) []string {
	text := os.Getenv(variable)
	if text == "" {
		return all
	}
	some := strings.Split(text, ",")
	for _, name := range some {
		if !slices.Contains(all, name) {
			panic(fmt.Sprintf("%s: there is no %q among %s", variable, name, all))
		}
	}
	return some
}

// sample returns n cases of pairs and triples. With every pair of features comes a verb and a
// fault, in an order that the seed decides; n is at most one round of all pairs, and further rounds
// have other verbs and faults.
func sample(seed uint64, n int) (cases []Case) {
	random := rand.New(rand.NewPCG(seed, 0))
	all, vs, fs := chosen("FEATURES", names()), chosen("VERBS", verbNames()), chosen("FAULTS", faults)
	for len(cases) < n {
		var lives [][]string
		for _, a := range all {
			for _, b := range all {
				lives = append(lives, []string{a, b})
			}
		}
		random.Shuffle(len(lives), func(i, j int) { lives[i], lives[j] = lives[j], lives[i] })
		for _, life := range lives {
			if len(cases) == n {
				break
			}
			if len(cases)%4 == 3 {
				life = append(life, all[random.IntN(len(all))])
			}
			cases = append(cases, Case{Life: life, Verb: vs[random.IntN(len(vs))], Fault: fs[random.IntN(len(fs))], Seed: random.Uint64N(1000)})
		}
	}
	return cases
}

// triples is how many triples everything has.
const triples = 5000

// slower are features whose cases take longer than others: everything has fewer of each pair.
var slower = []string{"fleet", "blocked"}

// slowerTimes is how many cases of such a pair everything has.
const slowerTimes = 8

// everything returns all pairs, with each verb beside a random fault and with each fault beside a
// random verb, and random triples.
func everything(seed uint64) (cases []Case) {
	random := rand.New(rand.NewPCG(seed, 0))
	all, vs, fs := chosen("FEATURES", names()), chosen("VERBS", verbNames()), chosen("FAULTS", faults)
	one := func(of []string) string { return of[random.IntN(len(of))] }
	add := func(verb, fault string, life ...string) {
		cases = append(cases, Case{life, verb, fault, random.Uint64N(1000)})
	}
	for _, a := range all {
		for _, b := range all {
			if slices.Contains(slower, a) || slices.Contains(slower, b) {
				for range slowerTimes {
					add(one(vs), one(fs), a, b)
				}
				continue
			}
			for _, verb := range vs {
				add(verb, one(fs), a, b)
			}
			for _, fault := range fs {
				add(one(vs), fault, a, b)
			}
		}
	}
	for range triples {
		add(one(vs), one(fs), one(all), one(all), one(all))
	}
	return cases
}

// TestPairs runs the generator's cases: a sample, and in make proof all pairs with each verb and
// each fault. SEED chooses the sample, 0 any (as make proof does), and N is its size; FEATURES,
// VERBS and FAULTS list what is combined; PAIRS_PART=1/2 runs a half of everything, CASE one case.
func TestPairs(t *testing.T) {
	t.Parallel()
	seed := uint64(tier.Size(t, "SEED", 1, 1, 0))
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	n := tier.Size(t, "N", 24, 80, 0)
	cases := sample(seed, n) // none for n = 0
	if n == 0 {
		part, parts := tier.Part(t, "PAIRS_PART")
		for i, c := range everything(seed) {
			if i%parts == part {
				cases = append(cases, c)
			}
		}
	}
	if text := os.Getenv("CASE"); text != "" {
		c, err := parse(text)
		require.NoError(t, err)
		cases = []Case{c}
	}
	feed := make(chan Case)
	go func() {
		defer close(feed)
		for _, c := range cases {
			select {
			case feed <- c:
			case <-t.Context().Done():
				return
			}
		}
	}()
	var m sync.Mutex
	met, failed := map[string]int{}, 0
	var group sync.WaitGroup
	for range min(len(cases), 2*runtime.GOMAXPROCS(0)) {
		b := newBase(t, nil)
		group.Go(func() {
			for c := range feed {
				violations, story, err := play(t, b, c)
				known, ok := recognised(violations)
				if err == nil && (ok || len(violations) == 0) {
					m.Lock()
					for _, fault := range known {
						if met[fault]++; met[fault] <= 3 {
							t.Logf("%s is met by CASE=%s", fault, c)
						}
					}
					m.Unlock()
					if os.Getenv("CASE") != "" {
						t.Log(story)
					}
					continue
				}
				m.Lock()
				failed++
				m.Unlock()
				t.Errorf("CASE=%s: %v\n%s", c, err, story)
			}
		})
	}
	group.Wait()
	tier.Figure(t, "%d cases", len(cases))
	t.Logf("%d cases, SEED=%d: %d failed, known faults met: %v", len(cases), seed, failed, met)
}
