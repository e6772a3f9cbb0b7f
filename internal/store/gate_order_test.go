package store_test

import (
	"cmp"
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

// ordered is the order of specification §6, as a pure model of what one process claims from one
// queue, and in which order. All processes and queues share one world.
type ordered struct {
	*orderedWorld
	queue  string
	turned map[string]*orderedTurn // by party
	front  float64                 // the pass of the front
	now    float64
	begun  int
}

type orderedWorld struct {
	gates   map[string]*orderedGate // by party
	waiting []*orderedRow           // in the order of queues
}

type orderedGate struct {
	places  int            // of a key; -1: any number
	total   int            // of all keys; -1: any number
	rate    float64        // the burst of all keys; 0: there is no rate
	weight  int            // beside other gates
	keys    map[string]int // weights
	own     map[string]int // places of keys that have their own
	running map[string]int // by key
	owes    float64        // what all keys owe
}

// orderedTurn is where a process is at a gate.
type orderedTurn struct {
	after string
	used  int
	pass  float64
}

func (o *ordered) turnAt(party string) *orderedTurn {
	if o.turned[party] == nil {
		o.turned[party] = &orderedTurn{}
	}
	return o.turned[party]
}

type orderedRow struct {
	id       int64
	queue    string
	party    string // empty: the front
	key      string
	priority int
	age      int
	cost     int
}

func compareRows(a, b *orderedRow) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.age, a.age), cmp.Compare(a.id, b.id))
}

// turns returns the rows of a party in their turns, as many as a claim may take now. One that
// yields leaves a place to the other queue where that is ahead.
func (o *ordered) turns(party string, want int, yields bool) (rows []*orderedRow) {
	g, at := o.gates[party], o.turnAt(party)
	lines, others := map[string][]*orderedRow{}, map[string]*orderedRow{}
	for _, r := range o.waiting {
		if r.party == party && r.queue == o.queue {
			lines[r.key] = append(lines[r.key], r)
		} else if r.party == party && yields && others[r.key] == nil {
			others[r.key] = r
		}
	}
	names := slices.Sorted(maps.Keys(lines))
	if at.after != "" { // the ring begins behind the last turn, or in its middle
		n, _ := slices.BinarySearchFunc(names, at.after, func(name, after string) int {
			if at.used == 0 && name == after {
				return -1
			}
			return strings.Compare(name, after)
		})
		names = slices.Concat(names[n:], names[:n])
	}
	shared := want
	if g.total >= 0 {
		all := 0
		for _, n := range g.running {
			all += n
		}
		shared = g.total - all
	}
	if g.rate > 0 {
		shared = int(g.rate - g.owes)
	}
	bounded := g.total >= 0 || g.rate > 0
	if bounded && len(others) > 0 {
		shared--
	}
	left := min(want, shared)
	if left <= 0 {
		return nil
	}
	type turn struct {
		key                string
		free, used, weight int
	}
	var met []turn
	sum := 0
	for i, name := range names {
		t := turn{key: name, free: left, weight: max(1, g.keys[name])}
		if places, own := g.own[name]; own || g.places >= 0 {
			if !own {
				places = g.places
			}
			free := places - g.running[name]
			if o := others[name]; o != nil && free <= want && compareRows(o, lines[name][0]) < 0 {
				free--
			}
			t.free = min(left, free)
		}
		if i == 0 && name == at.after {
			t.used = min(at.used, t.weight-1)
		}
		if t.free > 0 {
			met = append(met, t)
			if sum += min(t.free, t.weight-t.used); sum >= want {
				break
			}
		}
	}
	rounds := (want + sum - 1) / max(1, sum)
	spent := 0.0
	for round := range rounds {
		for _, t := range met {
			took := max(0, round*t.weight-t.used)
			for range t.weight - btoi(round == 0)*t.used {
				if took >= t.free || took >= len(lines[t.key]) {
					break
				}
				r := lines[t.key][took]
				spent += float64(r.cost)
				if g.rate > 0 && g.owes+spent-float64(r.cost)+min(float64(r.cost), g.rate) > g.rate || bounded && len(rows) >= shared {
					return rows // nobody of the gate before the one whose turn it is
				}
				rows = append(rows, r)
				took++
			}
		}
	}
	return rows
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// claim takes so many rows.
func (o *ordered) claim(want int, yields bool) (ids []int64) {
	type next struct {
		rows   []*orderedRow
		pass   float64
		weight int
		since  int
	}
	parties := map[string]*next{}
	for name, g := range o.gates {
		if rows := o.turns(name, want, yields); len(rows) > 0 {
			parties[name] = &next{rows, max(o.turnAt(name).pass, o.now), g.weight, rows[0].age}
		}
	}
	may := 0 // the weight of the front: that of all gates together
	for name := range parties {
		may += o.gates[name].weight
	}
	var front []*orderedRow
	for _, r := range o.waiting {
		if r.party == "" && r.queue == o.queue {
			front = append(front, r)
		}
	}
	if len(front) > 0 {
		parties[""] = &next{front, max(o.front, o.now), max(1, may), front[0].age}
	}
	aged := min(want, (o.begun+want)/16)
	oldest := 0
	for _, p := range parties {
		oldest = max(oldest, p.since)
	}
	took := map[string]int{}
	tag := func(name string) float64 {
		return parties[name].pass + float64(took[name])/float64(parties[name].weight)
	}
	for range want {
		best, bestUrgent, bestAged := "", 0, false
		found := false
		for _, name := range slices.Sorted(maps.Keys(parties)) {
			p := parties[name]
			if len(p.rows) == 0 {
				continue
			}
			urgent := slices.MinFunc(p.rows, func(a, b *orderedRow) int { return cmp.Compare(a.priority, b.priority) }).priority
			isAged := took[name] < aged && p.since == oldest
			better := !found || cmp.Or(-cmp.Compare(btoi(isAged), btoi(bestAged)), cmp.Compare(urgent, bestUrgent), cmp.Compare(tag(name), tag(best))) < 0 ||
				best == "" && isAged == bestAged && urgent == bestUrgent && tag(name) == tag(best) // the front comes last of equals
			if better {
				best, bestUrgent, bestAged, found = name, urgent, isAged, true
			}
		}
		if !found {
			break
		}
		p := parties[best]
		r := p.rows[0]
		ids, p.rows = append(ids, r.id), p.rows[1:]
		took[best]++
		o.enter(r)
	}
	o.pay(took, may, aged)
	return ids
}

// enter takes what a row needs, and notes whose turn it was.
func (o *ordered) enter(r *orderedRow) {
	o.waiting = slices.DeleteFunc(o.waiting, func(x *orderedRow) bool { return x == r })
	if g := o.gates[r.party]; g != nil {
		t := o.turnAt(r.party)
		if t.after != r.key {
			t.after, t.used = r.key, 0
		}
		t.used = (t.used + 1) % max(1, g.keys[r.key])
		g.running[r.key]++
		if g.rate > 0 {
			g.owes += float64(r.cost)
		}
	}
}

// pay moves the passes of those that had starts.
func (o *ordered) pay(took map[string]int, may, aged int) {
	least, all := 1e9, 0
	for name, n := range took {
		all += n
		if name == "" && may > 0 {
			least = min(least, max(o.front, o.now))
		} else if name != "" {
			least = min(least, max(o.turnAt(name).pass, o.now))
		}
	}
	for name, n := range took {
		if name == "" && may > 0 {
			o.front = max(o.front, o.now) + float64(n)/float64(may)
		} else if t := o.turnAt(name); name != "" {
			t.pass = max(t.pass, o.now) + float64(n)/float64(o.gates[name].weight)
		}
	}
	if least < 1e9 {
		o.now = max(o.now, least)
	}
	o.begun = max(0, o.begun+all-16*min(all, aged))
}

// Over random histories of two processes, two queues and gates of all kinds, claims take what the
// model takes: keys in turns by weight, more urgent parties first, equal ones by their weights, an
// expensive one in its turn, now and then what has waited longest, and what a queue leaves to one
// that is ahead.
func TestClaimsAreInOrder(t *testing.T) {
	for seed := range uint64(tier.Pick(4, 300)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b, random := newBench(t), rand.New(rand.NewPCG(seed, 7))
			o := &orderedWorld{gates: map[string]*orderedGate{}}
			queues := []string{"default", "other"}[:1+seed%2]
			b.serve("default", false, "1 h")
			b.serve("other", false, "1 h")
			keys := map[string][]string{}
			for n := range 1 + random.IntN(3) {
				name := string(rune('a' + n))
				g := &orderedGate{places: -1, total: -1, weight: 1 + random.IntN(3)*random.IntN(2), keys: map[string]int{}, own: map[string]int{}, running: map[string]int{}}
				rule := store.Gate{Name: name, Machine: "m" + name, Places: store.NoBound, Total: store.NoBound}
				party := name
				kind := random.IntN(5)
				if keys[name] = []string{name}; kind > 0 {
					rule.Label, party, keys[name] = "customer", name+"/", nil
					for k := range 1 + random.IntN(6) {
						key := fmt.Sprintf("%s/k%d", name, k)
						keys[name] = append(keys[name], key)
						if random.IntN(3) == 0 {
							g.keys[key] = 1 + random.IntN(4)
						}
						if random.IntN(4) == 0 {
							g.own[key] = 1 + random.IntN(6)
						}
					}
				}
				switch kind {
				case 2:
					g.total = 1 + random.IntN(4)
					rule.Total = g.total
				case 3:
					g.rate = float64(3 + random.IntN(5))
					rule.TotalRate, rule.CostLabel = store.Rate{N: 1, Per: 1000 * time.Hour, Burst: int(g.rate)}, "cost"
				case 4:
					rule.Label, rule.Run = "customer", true
				}
				if kind != 3 || random.IntN(2) == 0 {
					g.places = 1 + random.IntN(4)
					rule.Places = g.places
				}
				b.gate(rule)
				o.gates[party] = g
				for key, weight := range g.keys {
					_, err := b.WeighGateKey(t.Context(), key, weight, store.By{Actor: "test"})
					require.NoError(t, err)
				}
				for key, places := range g.own {
					b.place(key, places)
				}
				if g.weight > 1 {
					_, err := b.WeighGateKey(t.Context(), name, g.weight, store.By{Actor: "test"})
					require.NoError(t, err)
				}
			}
			rows := map[int64]*orderedRow{}
			var running []*orderedRow
			claims := map[int64]func(){}
			add := func() {
				r := &orderedRow{priority: random.IntN(3) * random.IntN(2), age: 1 + random.IntN(1_000_000), cost: 1, queue: queues[random.IntN(len(queues))]}
				row := columns{"queue": quote(r.queue), "fsm": `'f'`, "step": `'s'`, "priority": fmt.Sprint(r.priority), "eligible_at": fmt.Sprintf("now() - %d * interval '1 s'", r.age)}
				if party := random.IntN(len(keys) + 1); party > 0 {
					name := slices.Sorted(maps.Keys(keys))[party-1]
					r.key = keys[name][random.IntN(len(keys[name]))]
					r.party = r.key
					_, value, labelled := strings.Cut(r.key, "/")
					if labelled {
						r.party = name + "/"
					}
					if o.gates[r.party].rate > 0 && random.IntN(3) == 0 {
						r.cost = 1 + random.IntN(9)
					}
					row = row.with(columns{"fsm": quote("m" + name), "pick_lane": `3`, "gate": quote(r.key),
						"labels": quote(fmt.Sprintf(`{"customer": "%s", "cost": "%d"}`, value, r.cost))})
				}
				r.id = b.insert(row)
				rows[r.id], o.waiting = r, append(o.waiting, r)
				slices.SortFunc(o.waiting, compareRows)
			}
			type who struct {
				process int
				queue   string
			}
			turns, models := map[who]store.Turn{}, map[who]*ordered{}
			for n := range tier.Pick(40, 200) {
				for range random.IntN(6) {
					add()
				}
				want := 1 + random.IntN(4) // as many as a claim looks at, at any number of gates
				me := who{random.IntN(1 + int(seed/2)%2), queues[random.IntN(len(queues))]}
				if models[me] == nil {
					models[me] = &ordered{orderedWorld: o, queue: me.queue, turned: map[string]*orderedTurn{}}
				}
				yields := random.IntN(2) == 0
				expected := models[me].claim(want, yields)
				got := b.claim(queue(me.queue), most(want), window(100), knowing("f/1", "ma/1", "mb/1", "mc/1"), func(p *store.ClaimParams) {
					p.Gated, p.Lines = true, turns[me]
					p.Lines.Yields = yields
				})
				turns[me] = got.Turn
				require.ElementsMatch(t, expected, ids(got.Claims), "claim %d of %d", n, want)
				for _, c := range got.Claims {
					running = append(running, rows[c.ID])
					claims[c.ID] = func() { b.finish(c) }
				}
				for len(running) > 0 && random.IntN(3) > 0 {
					at := random.IntN(len(running))
					r := running[at]
					claims[r.id]()
					running = slices.Delete(running, at, at+1)
					if g := o.gates[r.party]; g != nil {
						g.running[r.key]--
					}
				}
				if random.IntN(4) == 0 { // what all keys owe is paid off
					for _, g := range o.gates {
						g.owes = 0
					}
					b.exec(`UPDATE gendurable.gate_keys SET debt = 0`)
				}
			}
			require.NotEmpty(t, rows)
		})
	}
}
