package store

import (
	"cmp"
	"strings"
	"time"
)

// A gate bounds how many instances execute at a time, in all processes together. It is a row of the
// table gates. Its places have the numbers from 1 to gates.places; a gate with a label has so many
// for each value of the label. The text gate of an instance is the gate's name, or name/value.
//
// An instance behind a gate runs like this:
//
//   - Whatever makes it runnable puts it in front (lane 0), like any other, and knows of no gate.
//   - A claim of a process that knows of gates meets it there, and puts it in line at its gate
//     (lane 3) instead of claiming it: see gatedSQL. Rows in line are out of everybody's way.
//   - Admit gives it a place, the lowest number that is free, and puts it in front again: admitSQL.
//   - A claim meets it in front with a place, and claims it like any other.
//   - Whatever ends the claim deletes the place, in the same update.
//
// So the place is a column of the row that has it, and ends with the row's claim, however that
// ends: no counter has to be kept in step. The unique index gen_durable_place keeps anyone from
// giving one number twice, whatever the others did meanwhile.
//
// A row in line needs somebody to look at its gate after a place has become free. The process whose
// claim ended does so, and the process that put the row in line, both in a later transaction than
// the one that ended or filed. Whichever of the two looks last sees the free place and the row: the
// later one begins after both have committed. If one of them dies before it looks, or was none of
// the engine's, the sweep of lines looks: see Lines.

// gateText is the gate of row g, or NULL. Of several gates the narrowest counts: that of the step,
// then of the machine, of a label, of the queue. Gates.Of decides the same for a worker that goes
// on to another step.
const gateText = `(SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM {s}.gates r
      WHERE coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true) AND coalesce(r.step = g.step, true)
        AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1)`

// inLine selects the rows that stand in line at a gate. lineOrder is the order of gen_durable_line:
// with it, a plan made on an empty table takes that index, too.
const (
	inLine    = `g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3`
	lineOrder = `ORDER BY g.gate, g.queue, g.priority, g.eligible_at, g.id`
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

// Of returns the gate of an instance at a step, as gateText does; "" if there is none.
func (gs Gates) Of(queue, machine, step string, labels map[string]string) string {
	matches := func(want, is string) bool { return want == "" || want == is }
	var found *Gate
	for i := range gs {
		g := &gs[i]
		_, labelled := labels[g.Label]
		if matches(g.Queue, queue) && matches(g.Machine, machine) && matches(g.Step, step) && (g.Label == "" || labelled) &&
			(found == nil || g.narrower(found) < 0) {
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

// narrower compares gates in the order in which they count.
func (g *Gate) narrower(o *Gate) int {
	none := func(a, b string) int { return cmp.Compare(btoi(a == ""), btoi(b == "")) }
	return cmp.Or(none(g.Step, o.Step), none(g.Machine, o.Machine), none(g.Label, o.Label), none(g.Queue, o.Queue), strings.Compare(g.Name, o.Name))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
