package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/store"
)

// seats is the name of the gate of a queue in these histories.
const seats = "seats"

// setGates stores a gate of some kind, changes the one that there is, or drops one. Beside a gate
// for whole runs there is only the gate of a queue: the model does not know the lines, and an
// instance that has a place for its run may wait for another at the next gate.
func (h *history) setGates() bool {
	if !h.gated {
		return false
	}
	names := []string{"values", "machine", seats, "runs"}
	if gates := h.model.Gates(); len(gates) > 0 && h.rarely("drop") {
		h.dropGate(one(h, gates, "gate").Name)
		return true
	}
	g := model.Gate{Name: one(h, names, "gate"), Places: model.None, Total: model.None}
	rate := func(label string) model.Rate {
		return model.Rate{N: 1, Per: 10 * time.Second, Burst: h.upTo(3, label)}
	}
	for _, other := range h.model.Gates() {
		if g.Name != seats && other.Name != seats && other.Name != g.Name && (g.Name == "runs" || other.Name == "runs") {
			h.dropGate(other.Name)
		}
	}
	switch g.Name {
	case "runs":
		g.Labelled, g.Run, g.Places = true, true, h.upTo(2, "places")
	case seats:
		g.Queue, g.Places = queues[0], h.upTo(3, "places")
	default:
		if g.Labelled = g.Name == "values"; !g.Labelled {
			g.Machine = "b"
		}
		if g.Labelled && h.flip("total") {
			g.Total = h.upTo(3, "total")
		}
		if g.Total == model.None || h.flip("places") {
			g.Places = h.upTo(2, "places") - 1
		}
	}
	if !g.Run && h.flip("rate") {
		g.Rate = rate("burst")
		if h.flip("rate only") {
			g.Places, g.Total = model.None, model.None
		}
	}
	if g.Labelled && !g.Run && h.rarely("rate of all") {
		g.All = rate("burst of all")
	}
	h.setGate(g)
	return true
}

var operator = store.By{Actor: "model"}

func (p *pair) setGate(g model.Gate) {
	p.logf("setGate(%s)", brief(g))
	rate := func(r model.Rate) store.Rate { return store.Rate{N: r.N, Per: r.Per, Burst: r.Burst} }
	stored := store.Gate{Name: g.Name, Queue: g.Queue, Machine: g.Machine, Step: g.Step, Places: g.Places, Total: g.Total, Rate: rate(g.Rate),
		TotalRate: rate(g.All), Run: g.Run}
	if g.Labelled {
		stored.Label = "c"
	}
	ctx, cancel := p.context()
	defer cancel()
	_, err := p.SetGate(ctx, stored, operator)
	require.NoError(p, err)
	p.model.SetGate(g)
}

// refile goes through all lines, as every process does when gates have come to concern others. No
// instance stands in the line of another gate then, unless it is held.
func (p *pair) refile(page int) {
	p.logf("refile(%d)", page)
	ctx, cancel := p.context()
	defer cancel()
	var at store.Filed
	for more := true; more; {
		var err error
		_, more, err = p.Refile(ctx, &at, page)
		require.NoError(p, err)
	}
	rows, err := p.pool.Query(ctx, `SELECT uid, gate FROM gendurable.gen_durable WHERE pick_lane = 3 AND status = 'runnable' AND NOT paused`)
	require.NoError(p, err)
	defer rows.Close()
	for rows.Next() {
		var uid [16]byte
		var gate string
		require.NoError(p, rows.Scan(&uid, &gate))
		for _, i := range p.model.Instances(func(i *model.Instance) bool { return i.UID == modelUID(uid) && !p.model.Held(i.ID) }) {
			require.Equal(p, p.model.Line(i), gate, "line of instance %d", i.ID)
		}
	}
	require.NoError(p, rows.Err())
}

func (p *pair) dropGate(name string) {
	p.logf("dropGate(%s)", name)
	ctx, cancel := p.context()
	defer cancel()
	_, err := p.DropGate(ctx, name, operator)
	require.NoError(p, err)
	p.model.DropGate(name)
}

// A key that is not used is forgotten when it has paid off what it owes, and not before.
func TestKeysThatOweAreNotForgotten(t *testing.T) {
	p := newHistory(t)
	p.gated = true
	p.setGate(model.Gate{Name: "rate", Machine: machines[0].Name, Places: model.None, Total: model.None,
		Rate: model.Rate{N: 1, Per: time.Hour, Burst: 3}})
	p.claimOne(&everyone, p.insert(plain("1"))[0])
	for range 7 {
		p.advance(11 * time.Minute)
		p.prune(retention, 1000)
	}
}

// gateMutants break what moves those who are in line, and forgets keys.
var gateMutants = []mutant{
	{"nobody is filed anew", "gate_refile.go", "WHERE x.gate IS DISTINCT FROM x.now_at),", "WHERE false),"},
	{"filed anew at the gate of before", "gate_refile.go", "SET gate = l.now_at, pick_lane", "SET gate = g.gate, pick_lane"},
	{"one page is filed anew", "gate_refile.go", "return queues, seen >= most, nil", "return queues, seen > most, nil"},
	{"keys in use are forgotten", "sweep_gates.go", "b.at < c.now - interval '10 minutes'", "b.at < c.now"},
	{"keys are known for ever", "sweep_gates.go", "+` = 0 AND", "+` < 0 AND"},
	{"keys that owe are forgotten", "sweep_gates.go", "+` = 0 AND", "+` >= 0 AND"},
}
