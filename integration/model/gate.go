package model

import (
	"cmp"
	"slices"
	"time"
)

// None is the bound of a gate that bounds nothing.
const None = -1

// Gate is a rule about the instances that match all of Queue, Machine, Step and, if it is Labelled,
// have a label. There are three kinds: for whole runs, of a queue alone, and others. Of each kind
// at most one concerns an instance, the narrowest.
type Gate struct {
	Name     string
	Queue    string
	Machine  string // its name
	Step     string
	Labelled bool // its bounds are of each value of the label: these are its keys
	Run      bool // an instance has its place from its first claim to its end

	Places int // how many claims a key has at a time
	Total  int // how many claims all keys have at a time
	Rate   Rate
	All    Rate // of all keys
}

// Rate is how often claims begin: N in each Per, and Burst at once. With no N it bounds nothing.
type Rate struct {
	N, Burst int
	Per      time.Duration
}

// debt is what a key owes.
type debt struct {
	owes float64
	at   Moment
}

// SetGate stores a gate, or changes the one of its name. An executing instance keeps its place.
func (w *World) SetGate(g Gate) {
	w.DropGate(g.Name)
	w.gates = append(w.gates, g)
}

// DropGate deletes a gate.
func (w *World) DropGate(name string) {
	w.gates = slices.DeleteFunc(w.gates, func(g Gate) bool { return g.Name == name })
}

// Gates lists the gates.
func (w *World) Gates() []Gate { return slices.Clone(w.gates) }

// ofQueue reports whether a gate is one of a queue alone. It bounds the claims of the queue.
func (g *Gate) ofQueue() bool {
	return g.Queue != "" && g.Machine == "" && g.Step == "" && !g.Labelled && !g.Run
}

func (g *Gate) concerns(i *Instance) bool {
	matches := func(want, is string) bool { return want == "" || want == is }
	return matches(g.Queue, i.Queue) && matches(g.Machine, i.Machine.Name) && matches(g.Step, i.Step) && (!g.Labelled || i.Label != "")
}

// key owns the places and debts of an instance.
func (g *Gate) key(i *Instance) string {
	if g.Labelled {
		return g.Name + "/" + i.Label
	}
	return g.Name
}

// narrowest returns the gate of a kind that concerns an instance, or nil.
func (w *World) narrowest(i *Instance, kind func(*Gate) bool) *Gate {
	var found []*Gate
	for n := range w.gates {
		if g := &w.gates[n]; kind(g) && g.concerns(i) {
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return nil
	}
	none := func(a, b string) int { return cmp.Compare(blank(a), blank(b)) }
	return slices.MinFunc(found, func(a, b *Gate) int {
		return cmp.Or(none(a.Step, b.Step), none(a.Machine, b.Machine), cmp.Compare(blank(label(a)), blank(label(b))), none(a.Queue, b.Queue),
			cmp.Compare(a.Name, b.Name))
	})
}

func label(g *Gate) string {
	if g.Labelled {
		return "label"
	}
	return ""
}

func blank(s string) int {
	if s == "" {
		return 1
	}
	return 0
}

// passes returns the gates that a claim of an instance goes through now.
func (w *World) passes(i *Instance) (run, seat, other *Gate) {
	if i.RunPlace == "" {
		run = w.narrowest(i, func(g *Gate) bool { return g.Run })
	}
	seat = w.narrowest(i, (*Gate).ofQueue)
	other = w.narrowest(i, func(g *Gate) bool { return !g.Run && !g.ofQueue() })
	return run, seat, other
}

// May reports whether an instance may begin, for all gates. slack is what a debt may be wrong by.
func (w *World) May(i *Instance, slack float64) bool {
	run, seat, other := w.passes(i)
	count := func(has func(*Instance) bool) int { return len(w.Instances(has)) }
	if run != nil && count(func(o *Instance) bool { return o.RunPlace == run.key(i) && !o.Status.Terminal() }) >= run.Places {
		return false
	}
	if seat != nil && (seat.Places != None && count(func(o *Instance) bool { return o.Seat && o.Queue == i.Queue }) >= seat.Places ||
		!w.affords(seat.Name, seat.Rate, slack)) {
		return false
	}
	if other == nil {
		return true
	}
	return (other.Places == None || count(func(o *Instance) bool { return o.Place == other.key(i) }) < other.Places) &&
		(other.Total == None || count(func(o *Instance) bool { return gateOf(o.Place) == other.Name }) < other.Total) &&
		w.affords(other.key(i), other.Rate, slack) && w.affords(other.Name, other.All, slack)
}

// gateOf returns the name of the gate of a key.
func gateOf(key string) string {
	for n := range key {
		if key[n] == '/' {
			return key[:n]
		}
	}
	return key
}

// owes returns what is left of the debt of a key.
func (w *World) owes(key string, r Rate) float64 {
	d, known := w.debts[key]
	if !known || r.N == 0 {
		return 0
	}
	return max(0, d.owes-max(0, time.Duration(w.Now-d.at).Seconds())*float64(r.N)/r.Per.Seconds())
}

func (w *World) affords(key string, r Rate, slack float64) bool {
	return r.N == 0 || w.owes(key, r)+1 <= float64(r.Burst)+slack
}

// enter takes the places of a claim, and pays for it.
func (w *World) enter(i *Instance) {
	run, seat, other := w.passes(i)
	pay := func(key string, r Rate) {
		if r.N > 0 {
			if w.debts == nil {
				w.debts = map[string]debt{}
			}
			w.debts[key] = debt{w.owes(key, r) + 1, w.Now}
		}
	}
	if run != nil {
		i.RunPlace = run.key(i)
	}
	if seat != nil {
		i.Seat = seat.Places != None
		pay(seat.Name, seat.Rate)
	}
	if other != nil {
		if other.Places != None || other.Total != None {
			i.Place = other.key(i)
		}
		pay(other.key(i), other.Rate)
		if other.Labelled {
			pay(other.Name, other.All)
		}
	}
}

// forgetAfter is how long a key stays known after it was last paid at.
const forgetAfter = 10 * time.Minute

// ForgetKeys deletes what keys owe that have paid it off and have not been used for a while, and
// returns how many they are. Such a key cannot be told from one that was never used.
func (w *World) ForgetKeys() (forgotten int) {
	for key, d := range w.debts {
		if w.Now-d.at > Moment(forgetAfter) && w.owes(key, w.rateOf(key)) == 0 {
			delete(w.debts, key)
			forgotten++
		}
	}
	return forgotten
}

// rateOf returns the rate of a key, or no rate if there is none any more: then it owes nothing.
func (w *World) rateOf(key string) Rate {
	for n := range w.gates {
		g := &w.gates[n]
		switch {
		case g.Name != gateOf(key):
		case g.Labelled && key == g.Name:
			return g.All
		default:
			return g.Rate
		}
	}
	return Rate{}
}

// Line returns the key of the gate in whose line an instance belongs if it has to wait, or "": the
// key of its run's gate comes first.
func (w *World) Line(i *Instance) string {
	run, _, other := w.passes(i)
	switch {
	case run != nil:
		return run.key(i)
	case other != nil:
		return other.key(i)
	}
	return ""
}
