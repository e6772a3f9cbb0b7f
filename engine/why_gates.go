package engine

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/internal/store"
)

// gates looks what the gates allow through which an instance has to go next: the one at which it is
// in line, or will be once a claim meets it, and the one of its queue.
func (w *why) gates() {
	rows := w.around.Gates
	w.changed = map[string]time.Time{}
	if len(rows) == 0 {
		return
	}
	gates := make(store.Gates, len(rows))
	for i, r := range rows {
		gates[i] = gateRule(r)
		w.changed[r.ID] = r.UpdatedAt
	}
	key := gates.Of(w.row.Queue, w.row.Machine, w.row.Step, w.row.Labels, w.row.RunGate != nil)
	if w.row.PickLane == lineLane {
		key = text(w.row.Gate)
	}
	if g := gates.Named(key); g != nil {
		w.atGate(g, key)
	}
	own := gates.OfQueue(w.row.Queue)
	if own == nil {
		return
	}
	known := w.gateKeys(own.Name)
	w.closed(own, known)
	w.places(CauseGate, own.Name, own.Places, nil, instance.Queue(own.Queue), instance.SeatNotNil())
	w.rate(known, own.Name, own.Rate, func() (float64, int) { return 1, 0 })
}

// atGate looks at the gate of a key.
func (w *why) atGate(g *store.Gate, key string) {
	known := w.gateKeys(key, g.Name)
	w.closed(g, known)
	if g.Run {
		w.places(CauseGateRun, key, g.Places, known, instance.RunGate(key), instance.RunPlaceNotNil(), instance.FinishedAtIsNil())
		return
	}
	w.places(CauseGate, key, g.Places, known, instance.Gate(key), instance.PlaceNotNil())
	if g.Total > 0 {
		w.places(CauseGate, g.Name, g.Total, nil, instance.GateHasPrefix(g.Name+"/"), instance.PlaceNotNil())
	}
	if g.Rate.N == 0 && g.TotalRate.N == 0 {
		return
	}
	ahead := w.find(whyMost, nil, instance.PickLane(lineLane), instance.Gate(key), w.before())
	cost := func() (float64, int) {
		if len(*ahead) == 0 {
			return costAt(g, w.row.Labels), 0
		}
		return 1, len(*ahead)
	}
	w.rate(known, key, g.Rate, cost)
	if g.Label != "" {
		w.rate(known, g.Name, g.TotalRate, cost)
	}
}

// These are the lanes of instances in line, and of nodes that are to be skipped.
const (
	lineLane = 3
	skipLane = 5
)

// closed looks who has closed a gate, or one key of it.
func (w *why) closed(g *store.Gate, known *[]*ent.GateKey) {
	if g.Places == 0 || g.Total == 0 {
		w.add(Cause{Kind: CauseGateClosed, Names: []string{g.Name}})
	}
	w.said = append(w.said, func() {
		var closed []Cause
		for _, k := range *known {
			if k.ClosedUntil != nil && k.ClosedUntil.After(w.now) {
				closed = append(closed, Cause{Kind: CauseGateClosed, Names: []string{k.ID}, Until: k.ClosedUntil.UTC()})
			}
		}
		slices.SortStableFunc(closed, func(a, b Cause) int { return a.Until.Compare(b.Until) })
		w.causes = append(w.causes, closed...)
	})
}

// places looks whether all places are taken, and by whom. A key that is known may have its own
// places; nil: it has none.
func (w *why) places(kind CauseKind, key string, most int, known *[]*ent.GateKey, held ...predicate.Instance) {
	own := known != nil && strings.Contains(key, "/") && most != 0
	look := most
	if own {
		look = MaxGatePlaces
	}
	if look <= 0 {
		return
	}
	taken := w.find(look, byID(), held...)
	w.say(func() (Cause, bool) {
		if own {
			most = ownPlaces(*known, key, most)
		}
		if most <= 0 || len(*taken) < most {
			return Cause{}, false
		}
		c := Cause{Kind: kind, Names: []string{key}, IDs: foundIDs((*taken)[:min(most, whyList)]), Count: most}
		if first := (*taken)[0]; kind == CauseGateRun {
			c.Names = append(c.Names, string(first.Status), first.Step)
		}
		return c, true
	})
}

// ownPlaces returns the places of a key: its gate's, unless it has its own.
func ownPlaces(known []*ent.GateKey, key string, of int) int {
	for _, k := range known {
		if k.ID == key && k.Places != nil {
			return int(*k.Places)
		}
	}
	return of
}

// rate looks whether the rate of a key leaves enough for an instance by now, and if not, when. cost
// is called with the answers: for how many it counts, and how many are in line before it.
func (w *why) rate(known *[]*ent.GateKey, key string, r store.Rate, cost func() (float64, int)) {
	if r.N == 0 {
		return
	}
	w.say(func() (Cause, bool) {
		for _, k := range *known {
			if k.ID == key {
				n, ahead := cost()
				name, _, _ := strings.Cut(key, "/")
				in := untilPaid(r, w.changed[name], k, n, w.now)
				return Cause{Kind: CauseGateRate, Names: []string{key}, Until: w.now.Add(in).UTC(), Count: ahead}, in > 0
			}
		}
		return Cause{}, false // nothing is owed yet
	})
}

// untilPaid returns how long after now the debt of a key has come down so far that something of a
// cost may begin, as a claim decides it.
func untilPaid(r store.Rate, changed time.Time, k *ent.GateKey, cost float64, now time.Time) time.Duration {
	perSecond := float64(r.N) / r.Per.Seconds() * k.Pace
	debt := k.Debt
	if k.At.Before(changed) {
		debt = min(debt, float64(r.Burst))
	}
	debt = max(0, debt-max(0, now.Sub(k.At).Seconds())*perSecond)
	over := debt + min(cost, float64(r.Burst)) - float64(r.Burst)
	return time.Duration(math.Ceil(min(max(0, over/perSecond), 1e9) * float64(time.Second))) // paidIn has the same bound
}

// costAt returns for how many an instance with these labels counts in the rates of a gate.
func costAt(g *store.Gate, labels map[string]string) float64 {
	n, err := strconv.ParseUint(labels[g.CostLabel], 10, 64)
	if g.CostLabel == "" || err != nil || len(labels[g.CostLabel]) > 7 {
		return 1
	}
	return float64(min(max(n, 1), 1_000_000))
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// gateRule returns a row of gates as package store has it.
func gateRule(r *ent.Gate) store.Gate {
	bound := func(n *int32) int {
		if n == nil {
			return store.NoBound
		}
		return int(*n)
	}
	rate := func(n *int32, per *int64, burst *int32) store.Rate {
		if n == nil {
			return store.Rate{}
		}
		return store.Rate{N: int(*n), Per: time.Duration(*per) * time.Microsecond, Burst: int(*burst)}
	}
	return store.Gate{
		Name: r.ID, Queue: text(r.Queue), Machine: text(r.Machine), Step: text(r.Step), Label: text(r.Label),
		Places: bound(r.Places), Rate: rate(r.Rate, r.RatePer, r.RateBurst),
		Total: bound(r.Total), TotalRate: rate(r.TotalRate, r.TotalRatePer, r.TotalRateBurst),
		CostLabel: text(r.CostLabel), Adapt: r.Adapt, Run: r.Run,
	}
}
