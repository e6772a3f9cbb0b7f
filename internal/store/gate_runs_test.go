package store_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// scout goes through all lines of a queue in slices, and returns the blocked keys, run by run, and
// those whose time comes.
func (b bench) scout(queue string, most int, sparse bool) (runs [][2]string, due map[string]int64) {
	b.t.Helper()
	due = map[string]int64{}
	at := store.Scouted{Sparse: sparse}
	for more := true; more; more = at.Next != "" {
		var err error
		at, err = b.Scout(b.t.Context(), queue, at.Next, most, sparse, 2*time.Hour)
		require.NoError(b.t, err)
		for i, r := range at.Runs {
			if n := len(runs) - 1; i == 0 && at.Opens && n >= 0 && strings.HasPrefix(r.First, strings.SplitAfter(runs[n][0], "/")[0]) && runs[n][1] != "" {
				runs[n][1] = r.Last
				continue
			}
			runs = append(runs, [2]string{r.First, r.Last})
		}
		if n := len(runs) - 1; n >= 0 && !at.Ends {
			runs = append(runs, [2]string{})
		}
		for _, d := range at.Due {
			due[d.Key] = *d.Wait
		}
	}
	return slices.DeleteFunc(runs, func(r [2]string) bool { return r[0] == "" }), due
}

// crowd makes keys of three gates, by a seed: full, closed, in debt, or free, each with some rows
// in line. It returns which of them are blocked, in the order of bytes, and which for a time.
func (b bench) crowd(random *rand.Rand, queue string, keys int) (all []string, blocked, timed map[string]bool) {
	b.t.Helper()
	b.gate(store.Gate{Name: "a", Label: "customer", Machine: "m", Places: 2, Total: store.NoBound})
	b.gate(store.Gate{Name: "b", Label: "customer", Machine: "n", Places: 1, Total: store.NoBound, Run: true})
	b.gate(store.Gate{Name: "c", Label: "customer", Machine: "o", Places: store.NoBound, Total: store.NoBound, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 2}})
	blocked, timed = map[string]bool{}, map[string]bool{}
	for i := range keys {
		for n, gate := range []string{"a", "b", "c"} {
			machine := []string{"m", "n", "o"}[n]
			customer := fmt.Sprintf("%c%03d", "xÄ+"[i%3], i)
			key := gate + "/" + customer
			all = append(all, key)
			taken := 0
			switch state := random.IntN(4); {
			case state == 3:
				b.exec(`INSERT INTO gendurable.gate_keys (key, closed_until) VALUES ($1, now() + interval '10 min')`, key)
				blocked[key], timed[key] = true, true
			case gate == "a":
				taken = state
				blocked[key] = state == 2
			case gate == "b":
				taken = state / 2
				blocked[key] = state == 2
			default:
				b.exec(`INSERT INTO gendurable.gate_keys (key, debt) VALUES ($1, $2)`, key, state)
				blocked[key] = state == 2
				timed[key] = state == 2
			}
			for place := range taken {
				place := columns{"fsm": quote(machine), "step": `'s'`, "queue": `'holders'`, "status": `'executing'`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 h'`,
					either(gate == "b", "run_gate", "gate"): quote(key), either(gate == "b", "run_place", "place"): fmt.Sprint(place + 1)}
				b.insert(place)
			}
			for range 1 + random.IntN(3) {
				b.insert(columns{"fsm": quote(machine), "step": `'s'`, "queue": quote(queue), "pick_lane": `3`, "gate": quote(key), "priority": fmt.Sprint(random.IntN(3)),
					"eligible_at": `now() - interval '1 h'`, "labels": fmt.Sprintf(`'{"customer": "%s"}'`, customer)})
			}
		}
	}
	slices.Sort(all)
	return all, blocked, timed
}

func either(is bool, a, b string) string {
	if is {
		return a
	}
	return b
}

// runsOf are the runs of blocked keys.
func runsOf(all []string, blocked map[string]bool) (runs [][2]string) {
	last := ""
	for _, key := range all {
		gate := key[:1]
		if blocked[key] && last == gate {
			runs[len(runs)-1][1] = key
		} else if blocked[key] {
			runs = append(runs, [2]string{key, key})
		}
		if last = ""; blocked[key] {
			last = gate
		}
	}
	return runs
}

// The scouter finds which keys cannot begin, whatever the size of its slices, and when their time
// comes. A key at which another queue is in line is not one of them.
func TestScoutTellsBlockedKeys(t *testing.T) {
	b := newBench(t)
	random := rand.New(rand.NewPCG(1, 2))
	all, blocked, timed := b.crowd(random, "default", 30)
	for _, most := range []int{1, 3, 17, 1000} {
		for _, sparse := range []bool{false, true} {
			runs, due := b.scout("default", most, sparse)
			require.Equal(t, runsOf(all, blocked), runs, "%d %v", most, sparse)
			for _, key := range all {
				wait, ok := due[key]
				require.Equal(t, timed[key], ok, key)
				require.LessOrEqual(t, time.Duration(wait)*time.Microsecond, time.Hour)
			}
		}
	}
	runs, _ := b.scout("other", 100, false)
	require.Empty(t, runs)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate) VALUES ('m', 's', 'other', 3, $1)`, runsOf(all, blocked)[0][0])
	b.serve("other", false, "1 h")
	blocked[runsOf(all, blocked)[0][0]] = false
	runs, _ = b.scout("default", 100, false)
	require.Equal(t, runsOf(all, blocked), runs)
}

// Claims that jump over what is blocked, and visit what is fresh, take the same rows in the same
// order, and go on at the same place, as claims that visit all keys.
func TestJumpsLeaveTheOrder(t *testing.T) {
	const keys, rounds = 25, 12
	b := newBench(t)
	play := func(seed uint64, jumping bool) (took [][]int64, turns []store.Turn) {
		b.clear()
		b.exec(`DELETE FROM gendurable.gates`)
		b.exec(`DELETE FROM gendurable.gate_keys`)
		_, blocked, _ := b.crowd(rand.New(rand.NewPCG(seed, 7)), "default", keys)
		first := int64(b.number(`SELECT min(id) FROM gendurable.gen_durable`))
		random := rand.New(rand.NewPCG(seed, 8))
		var turn store.Turn
		for round := range rounds {
			var jumps store.Jumps
			runs, _ := b.scout("default", 50, false)
			for _, r := range runs {
				jumps.Froms, jumps.Tos = append(jumps.Froms, r[0]), append(jumps.Tos, store.AfterKey(r[1]))
			}
			for _, key := range slices.Sorted(maps.Keys(blocked)) {
				if random.IntN(5) == 0 {
					jumps.Fresh = append(jumps.Fresh, key, key+"none")
				}
			}
			slices.Sort(jumps.Fresh)
			got := b.claim(gated, most(1+random.IntN(9)), knowing("m/1", "n/1", "o/1"), func(p *store.ClaimParams) {
				if p.Lines = turn; jumping {
					p.Jumps = jumps
				}
			})
			if turn = got.Turn; !jumping {
				require.Empty(t, got.Vain, "it was told nothing")
			}
			var ids []int64
			for _, c := range got.Claims {
				ids = append(ids, c.ID-first)
			}
			took, turns = append(took, ids), append(turns, turn)
			for _, v := range got.Vain {
				require.True(t, blocked[v.Key] || round > 0, v.Key)
			}
			b.exec(`UPDATE gendurable.gen_durable SET status = 'done', place = NULL, run_place = NULL, gate = NULL, locked_by = NULL, lease_expires_at = NULL, finished_at = now()
				WHERE status = 'executing' AND (id - $1) % 5 = $2`, first, random.IntN(5))
		}
		return took, turns
	}
	for seed := range uint64(tier.Pick(2, 20)) {
		plain, turns := play(seed, false)
		jumping, jumped := play(seed, true)
		require.Equal(t, plain, jumping, "seed %d", seed)
		require.Equal(t, turns, jumped, "seed %d", seed)
		require.Greater(t, len(slices.Concat(plain...)), 2*rounds)
	}
}

// What a claim reports of the keys that it has visited in vain, of new rows, and of rows that it
// has put in line.
func TestAClaimReportsKeys(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "g", Label: "customer", Places: 1, Total: store.NoBound})
	b.exec(`INSERT INTO gendurable.gate_keys (key, closed_until) VALUES ('g/closed', now() + interval '1 min')`)
	in := func(customer string) int64 {
		return b.of(customer, columns{"pick_lane": `3`, "gate": quote("g/" + customer)})
	}
	for _, customer := range []string{"a", "b", "c", "closed", "d"} {
		in(customer)
	}
	for _, customer := range []string{"a", "b", "d"} {
		b.of(customer, columns{"status": `'executing'`, "gate": quote("g/" + customer), "place": `1`, "locked_by": `'w'`, "lease_expires_at": `now() + interval '1 h'`})
	}
	last := b.of("front", nil)
	got := b.claim(gated, func(p *store.ClaimParams) {
		p.Jumps = store.Jumps{Froms: []string{"g/a", "g/closed"}, Tos: []string{"g/c", "g/dd"}, Fresh: []string{"g/a", "g/closed"}, After: last - 1}
	})
	require.Equal(t, []string{"g/a", "g/closed"}, keysOf(got.Vain), "it has jumped over b and d")
	require.Nil(t, got.Vain[0].Wait)
	require.InDelta(t, time.Minute.Microseconds(), *got.Vain[1].Wait, 30e6)
	require.Equal(t, []string{"g/front"}, got.Entered)
	require.Equal(t, store.Arrived{IDs: []int64{last}, Keys: []string{"g/front"}, Last: last, New: last}, got.Arrived)
	require.Len(t, got.Claims, 1, "c")
	for range 3 {
		b.of("elsewhere", columns{"queue": `'elsewhere'`, "pick_lane": `3`, "gate": `'g/elsewhere'`})
	}
	next := in("a")
	got = b.claim(gated, func(p *store.ClaimParams) { p.Jumps = store.Jumps{After: last} })
	require.Equal(t, []int64{next}, got.Arrived.IDs)
	require.Empty(t, got.Vain)
	require.Zero(t, b.claim(gated).Arrived)
}

func keysOf(vain []store.BlockedKey) (keys []string) {
	for _, v := range vain {
		keys = append(keys, v.Key)
	}
	return keys
}

// barred are the ways in which each of many keys cannot begin.
var barred = map[string]struct {
	gate store.Gate
	bar  string
}{
	"without a place": {store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: 1, Total: store.NoBound}, `INSERT INTO gendurable.gen_durable (fsm, step, queue, gate, place, status, locked_by, lease_expires_at)
		SELECT 'shut', 's', 'holders', 'a/' || n, 1, 'executing', 'w', now() + interval '1 h' FROM generate_series(1, $1::int) n`},
	"behind a run that is parked": {store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: 1, Total: store.NoBound, Run: true}, `INSERT INTO gendurable.gen_durable (fsm, step, queue, run_gate, run_place, status, awaits)
		SELECT 'shut', 's', 'holders', 'a/' || n, 1, 'awaiting_signal', '{go}' FROM generate_series(1, $1::int) n`},
	"closed": {store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: 1, Total: store.NoBound}, `INSERT INTO gendurable.gate_keys (key, closed_until)
		SELECT 'a/' || n, now() + interval '1 h' FROM generate_series(1, $1::int) n`},
	"in debt": {store.Gate{Name: "a", Label: "customer", Machine: "shut", Places: store.NoBound, Total: store.NoBound, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 1}},
		`INSERT INTO gendurable.gate_keys (key, debt) SELECT 'a/' || n, 1 FROM generate_series(1, $1::int) n`},
}

// A claim beside a hundred thousand keys of which each is blocked touches a tenth more than without
// them, in a table as large, also while an old snapshot keeps dead entries. So does one that finds
// a fresh key among them.
func TestAClaimJumpsOverBlockedKeys(t *testing.T) {
	keys := tier.Pick(5_000, 100_000)
	for name, how := range barred {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.exec(`ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = off)`)
			b.gate(how.gate)
			b.gate(store.Gate{Name: "z", Label: "customer", Machine: "m", Places: 100, Total: store.NoBound})
			e := b.explained(name)
			fill := func(queue string) {
				b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, labels)
					SELECT 'shut', 's', $1, 3, 'a/' || n, jsonb_build_object('customer', n::text) FROM generate_series(1, $2::int) n`, queue, keys)
				b.exec(`VACUUM ANALYZE gendurable.gen_durable`)
			}
			var jumps store.Jumps
			var vain []string
			once := func() int {
				c, rows := e.measure(&measured{verb: name, most: 1, use: func(e explained, _ any) int {
					got := e.claim(gated, most(planRows), window(planRows), func(p *store.ClaimParams) { p.Jumps = jumps })
					require.Len(t, got.Claims, 50)
					require.False(t, got.Cut)
					vain = keysOf(got.Vain)
					return 1 << 20 // measure tries again only where more is touched
				}, prepare: func(e explained) any {
					e.exec(`DELETE FROM gendurable.gen_durable WHERE fsm = 'm'`)
					e.exec(`VACUUM gendurable.gen_durable`)
					for n := range 50 {
						e.insert(columns{"fsm": `'m'`, "step": `'s'`, "pick_lane": `3`, "gate": quote(fmt.Sprint("z/", n)), "labels": fmt.Sprintf(`'{"customer": "%d"}'`, n)})
					}
					return nil
				}})
				require.Positive(t, rows)
				return c.buffers
			}
			claim := func() int { // the least of three: what autovacuum has left to do comes on top
				return min(once(), once(), once())
			}
			b.exec(how.bar, keys)
			for range 2 { // the indexes are as deep
				fill("elsewhere")
			}
			beside := claim()
			fill("default")
			began := time.Now()
			runs, _ := b.scout("default", 4000, false)
			t.Logf("a pass over %d keys takes %v", keys, time.Since(began))
			require.Len(t, runs, 1)
			jumps.Froms, jumps.Tos = []string{runs[0][0]}, []string{store.AfterKey(runs[0][1])}
			many := claim()
			jumps.Fresh = []string{"a/3000"}
			fresh := claim()
			require.Equal(t, []string{runs[0][0], "a/3000"}, vain)
			pin := b.begin()
			b.inTx(pin, `SELECT pg_current_xact_id()`)
			b.exec(`UPDATE gendurable.gen_durable SET updated_at = now() WHERE queue = 'default' AND fsm = 'shut'`)
			pinned := claim()
			t.Logf("%d buffers without keys, %d beside %d, %d with a fresh one, %d behind a pinned snapshot", beside, many, keys, fresh, pinned)
			require.LessOrEqual(t, float64(many), 1.1*float64(beside))
			require.LessOrEqual(t, float64(fresh), 1.1*float64(beside)+100, "one visit more")
			require.LessOrEqual(t, float64(pinned), 1.1*float64(beside)+100)
			require.NoError(t, pin.Rollback(t.Context()))
		})
	}
}
