package model_test

import (
	"errors"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/step"
)

func realAdditions(a *model.Additions) *step.Additions {
	out := &step.Additions{Graph: step.Graph{Nodes: a.Graph.Nodes}, Most: 1000}
	for n := range a.Specs {
		out.Specs = append(out.Specs, *realSpec(&a.Specs[n]))
	}
	for _, l := range a.Graph.Edges {
		out.Graph.Edges = append(out.Graph.Edges, step.Edge{From: l.From, To: l.To, Needs: step.Need(l.Needs)})
	}
	return out
}

// refusesAdditions reports whether additions do not fit their graph, and holds the engine to it.
func (p *pair) refusesAdditions(d *decision, e *model.Entry, err error) bool {
	if d.outcome.Add == nil || !p.model.Holds(&d.Claim) || p.stuck(d) || p.model.Fits(e) {
		return false
	}
	_, refused := errors.AsType[*step.AddError](err)
	require.True(p, refused, "additions of node %d: %v", d.ID, err)
	return true
}

// adds ends a node that adds others to its graph: behind nodes of any kind, and before some, which
// may have begun, or wait for the added nodes.
func (h *history) adds(c *claim) model.Outcome {
	a := &model.Additions{}
	place := func(name string) int {
		if n := slices.Index(a.Graph.Nodes, name); n >= 0 {
			return n
		}
		a.Graph.Nodes = append(a.Graph.Nodes, name)
		return len(a.Graph.Nodes) - 1
	}
	for n := range h.upTo(2, "additions") {
		if name := "x" + number(h.upTo(4, "name")); n == 0 || a.Graph.Nodes[0] != name {
			place(name)
			s := plain(h.payload())
			s.Queue = one(h, []string{"", "", "mail"}, "queue")
			a.Specs = append(a.Specs, s)
		}
	}
	var there []string
	for _, i := range h.model.Instances(func(i *model.Instance) bool { return i.Parent == c.Parent && i.ParentRound == c.ParentRound }) {
		there = append(there, i.Node)
	}
	link := func(from, to int) {
		if from != to && !slices.ContainsFunc(a.Graph.Edges, func(l model.Link) bool { return l.From == from && l.To == to || l.From == to && l.To == from }) {
			a.Graph.Edges = append(a.Graph.Edges, model.Link{From: from, To: to, Needs: one(h, []model.Need{model.NeedsDone, model.NeedsEnd, model.NeedsFailed}, "needs")})
		}
	}
	var after []string
	for n := range a.Specs {
		if n > 0 && h.flip("behind the first") {
			link(0, n)
		}
		for range h.upTo(3, "after") - 1 {
			after = append(after, one(h, there, "origin"))
			link(place(after[len(after)-1]), n)
		}
	}
	for n := range a.Specs {
		to := one(h, there, "target")
		if at := place(to); h.flip("before") && at >= len(a.Specs) && !slices.Contains(after, to) {
			link(n, at)
		}
	}
	return model.Outcome{Kind: model.Finish, Result: "1", Add: a, At: model.Never}
}
