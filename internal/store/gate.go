package store

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A gate bounds how many instances execute at a time, and how many begin in a period, in all
// processes together. It is a row of the table gates. There are three kinds, and of each kind at
// most one concerns an instance:
//
//   - A gate that says Run holds for whole runs. An instance has its place (run_gate, run_place)
//     from its first claim to its end, parked or not.
//   - A gate that names nothing but a queue bounds the claims of that queue: see seatsSQL. A claim
//     has its place in the column seat.
//   - Of all others the narrowest counts: the gate of the step, then of the machine, of a label, of
//     the queue. A claim has its place in the column place.
//
// A gate with a label has so many places for each value of it. The text gate of an instance is the
// gate's name, or name/value: its key. Places have the numbers from 1.
//
// An instance behind a gate of the first or the third kind waits in line there (lane line), out of
// everybody's way: the insert puts it there if the process knows the gate, and otherwise a claim
// that meets it in front does: see gatedSQL. A claim from the lines gives it a place and makes it
// executing, in one update: see lineSQL. The end of the claim deletes the place, in the same
// update. So the place is a column of the row that has it, and ends with the row's claim, however
// that ends: no counter has to be kept in step.
//
// Only one transaction at a time admits at a gate: that which has its lock, see lockGatesSQL. What
// it counts it counts in a later statement, whose snapshot has every claim of those that had the
// lock before. Only claims take places, so it cannot count too few, although others end meanwhile.
// The unique indexes gen_durable_place, _seat and _run are there all the same: they refuse a place
// that is given twice, should a claim be wrong, or foreign SQL give places.
//
// A place that becomes free is seen by the next claim. The process whose claim has ended claims
// again, since it has a free slot; the others, once they poll.

// seatText is whether a gate r is one of a queue.
const seatText = `(r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)`

// gateText is the key of the gate at which row g has to be in line, or NULL. One for whole runs
// counts first, unless the instance has begun. Gates.Of decides the same for an inserter, and for a
// worker that goes on to another step.
var gateText = gateOf(`(r.run AND g.run_gate IS NULL OR NOT r.run AND NOT ` + seatText + `)`)

// onlyText finds whether there is no more than one gate at which instances get in line, and which.
const onlyText = `SELECT count(*) = 1 AS alone, min(r.name) AS name, min(r.queue) AS queue, min(r.machine) AS machine, min(r.step) AS step,
    min(r.label) AS label, bool_or(r.run) AS run
  FROM {s}.gates r WHERE NOT ` + seatText

// onlyGateText is gateText beside a row o of onlyText. If there is one gate only, a few
// comparisons say whether it concerns the row, and nothing has to be put in order for each row.
var onlyGateText = `CASE WHEN o.alone THEN CASE WHEN (NOT o.run OR g.run_gate IS NULL) AND coalesce(o.queue = g.queue, true)
        AND coalesce(o.machine = g.fsm, true) AND coalesce(o.step = g.step, true) AND (o.label IS NULL OR g.labels ->> o.label IS NOT NULL)
      THEN o.name || CASE WHEN o.label IS NULL THEN '' ELSE '/' || left(g.labels ->> o.label, 256) END END ELSE ` + gateText + ` END`

// stepGateText is gateText of an instance that has begun.
var stepGateText = gateOf(`NOT r.run AND NOT ` + seatText)

func gateOf(among string) string {
	return `(SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM {s}.gates r
      WHERE ` + among + ` AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1)`
}

// inLine selects the rows that stand in line at a gate. lineOrder is the order of
// gen_durable_lines: with it, a plan made on an empty table takes that index, too.
const (
	inLine    = `g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane line}`
	lineOrder = `ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id`
)

// Gate is a rule about the instances that match all of Queue, Machine, Step and Label that are not
// empty.
type Gate struct {
	Name    string
	Queue   string
	Machine string
	Step    string
	Label   string // one bound for each value of this label; an instance without it is not concerned

	Places    int  // how many execute at a time; negative: any number
	Rate      Rate // how many begin in a period
	Total     int  // of a gate with a label, how many of all values together execute at a time; negative: any number
	TotalRate Rate // of a gate with a label, how many of all values together begin in a period

	CostLabel string // the label whose value says for how many an instance counts in the rates; without it, for one
	Adapt     bool   // a key that is told of too many requests becomes slower for a while: see Throttle
	Run       bool   // Places bounds instances from their first claim to their end, parked or not, instead of steps
}

// NoBound are the Places, and the Total, of a gate that bounds only something else.
const NoBound = -1

// Rate bounds how many begin: N in each Per, and after a pause as many as Burst at once. The zero
// Rate bounds nothing.
type Rate struct {
	N     int
	Per   time.Duration
	Burst int // at least 1 if N is
}

// Gates are all gates, in any order.
type Gates []Gate

// Of returns the key of the gate at which an instance at a step has to be in line, as gateText
// does; "" if there is none. begun says that it has been claimed before.
func (gs Gates) Of(queue, machine, step string, labels map[string]string, begun bool) string {
	matches := func(want, is string) bool { return want == "" || want == is }
	var found *Gate
	for i := range gs {
		g := &gs[i]
		_, labelled := labels[g.Label]
		if !g.ofQueue() && (!g.Run || !begun) && matches(g.Queue, queue) && matches(g.Machine, machine) && matches(g.Step, step) &&
			(g.Label == "" || labelled) && (found == nil || g.narrower(found) < 0) {
			found = g
		}
	}
	switch {
	case found == nil:
		return ""
	case found.Label == "":
		return found.Name
	}
	value := []rune(labels[found.Label])
	return found.Name + "/" + string(value[:min(len(value), 256)])
}

// Passage is a gate through which instances go, and their key there.
type Passage struct {
	*Gate
	Key string
}

// Whole returns the gates through which all instances at a step have to go that are alike in some
// labels. One of these instances has labels.
func (gs Gates) Whole(queue, machine, step string, labels map[string]string, alike []string) (whole []Passage) {
	if own := gs.OfQueue(queue); own != nil {
		whole = append(whole, Passage{own, own.Name})
	}
	common := map[string]string{}
	for _, name := range alike {
		if value, ok := labels[name]; ok {
			common[name] = value
		}
	}
	for _, run := range []bool{false, true} {
		var kind Gates
		differ := false
		for _, g := range gs {
			if g.Run == run {
				kind = append(kind, g)
				differ = differ || g.Label != "" && !slices.Contains(alike, g.Label) &&
					kind[len(kind)-1:].Of(queue, machine, step, map[string]string{g.Label: ""}, false) != ""
			}
		}
		key := kind.Of(queue, machine, step, common, false)
		if gate := kind.Named(key); gate != nil && !differ {
			whole = append(whole, Passage{gate, key})
		}
	}
	return whole
}

// At returns the gates that may concern instances at a step.
func (gs Gates) At(queue, machine, step string) (some Gates) {
	matches := func(want, is string) bool { return want == "" || want == is }
	for _, g := range gs {
		if matches(g.Queue, queue) && matches(g.Machine, machine) && matches(g.Step, step) {
			some = append(some, g)
		}
	}
	return some
}

// Concern reports whether any gate may concern instances of a queue.
func (gs Gates) Concern(queue string) bool {
	return slices.ContainsFunc(gs, func(g Gate) bool { return g.Queue == "" || g.Queue == queue })
}

// OfQueue returns the gate of a queue, or nil: the first by name.
func (gs Gates) OfQueue(queue string) *Gate {
	var found *Gate
	for i := range gs {
		if g := &gs[i]; g.ofQueue() && g.Queue == queue && (found == nil || g.Name < found.Name) {
			found = g
		}
	}
	return found
}

// Named returns the gate of a key, or nil.
func (gs Gates) Named(key string) *Gate {
	name, _, _ := strings.Cut(key, "/")
	for i := range gs {
		if gs[i].Name == name {
			return &gs[i]
		}
	}
	return nil
}

// ofQueue is seatText.
func (g *Gate) ofQueue() bool {
	return g.Queue != "" && g.Machine == "" && g.Step == "" && g.Label == "" && g.CostLabel == "" && !g.Run
}

// narrower compares gates in the order in which they count.
func (g *Gate) narrower(o *Gate) int {
	none := func(a, b string) int { return cmp.Compare(btoi(a == ""), btoi(b == "")) }
	return cmp.Or(cmp.Compare(btoi(!g.Run), btoi(!o.Run)), none(g.Step, o.Step), none(g.Machine, o.Machine), none(g.Label, o.Label),
		none(g.Queue, o.Queue), strings.Compare(g.Name, o.Name))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
