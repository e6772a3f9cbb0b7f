package model_test

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/gendurable/gendurable/integration/model"
)

// Random histories choose from these values. They are few, so that they collide.
var (
	machines   = []model.Machine{{Name: "a", Version: 1}, {Name: "a", Version: 2}, {Name: "b", Version: 1}}
	queues     = []string{"mail", "pay"}
	names      = []string{"go", "halt", "tick"}
	partitions = []string{"", "", "north", "south"}
	keys       = []string{"", "", "red", "green", "blue"}
	steps      = []string{"first", "second"}
	dedupKeys  = []string{"", "", "x", "y", "z"}
	delays     = []time.Duration{0, 0, 0, time.Second, time.Second, time.Minute, time.Hour}
	labels     = []string{"", "x", "x", "y"}
	lives      = []time.Duration{time.Microsecond, time.Second, 10 * time.Second, time.Minute, time.Hour}
	retention  = model.Retention{Done: time.Minute, Failed: time.Hour, Tombstones: 1}
)

func one[T any](h *history, of []T, label string) T {
	return of[rapid.IntRange(0, len(of)-1).Draw(h.t, label)]
}

func (h *history) flip(label string) bool { return rapid.Bool().Draw(h.t, label) }

// rarely is true one time in four.
func (h *history) rarely(label string) bool { return rapid.IntRange(0, 3).Draw(h.t, label) == 3 }

func (h *history) upTo(n int, label string) int { return rapid.IntRange(1, n).Draw(h.t, label) }

func (h *history) room() bool {
	return len(h.model.Instances(func(*model.Instance) bool { return true })) < population
}

func (h *history) spec() model.Spec {
	s := model.Spec{
		Machine: one(h, machines, "machine"), Step: "first", Queue: one(h, queues, "queue"), Priority: one(h, []int{0, 0, 5, -5}, "priority"),
		State: h.payload(), PartitionKey: one(h, partitions, "partition key"), Key: one(h, keys, "key"),
		Scope: model.Scope(rapid.IntRange(0, 4).Draw(h.t, "scope")), At: model.Never,
	}
	if h.rarely("delayed") {
		s.Delay = one(h, delays, "delay")
	} else if h.rarely("timed") {
		s.At = h.time()
	}
	if h.gated {
		s.Label = one(h, labels, "label")
	}
	if h.rarely("mortal") {
		s.Life = one(h, lives, "life")
	}
	return s
}

// time returns an absolute time: past, now or future.
func (h *history) time() model.Moment {
	return max(0, h.model.Now+model.Moment(one(h, []time.Duration{-time.Second, 0, time.Second, time.Hour}, "time")))
}

func (h *history) specs(most int) []model.Spec {
	specs := make([]model.Spec, h.upTo(most, "specs"))
	for n := range specs {
		specs[n] = h.spec()
	}
	return specs
}

func (h *history) outcome(c *claim) (o model.Outcome, keep bool) {
	if c.real.Skip != "" { // a worker runs no step of it
		return skip(), false
	}
	o = model.Outcome{Kind: one(h, []model.Kind{model.Next, model.Next, model.Next, model.Retry, model.Retry, model.Await, model.Await,
		model.Await, model.Await, model.ScheduleChildren, model.ScheduleChildren, model.Finish, model.Finish, model.Fail, model.Again},
		"outcome"),
		At: model.Never}
	if c.Pending > 0 && h.flip("another round") { // of a redriven parent, whose last round is not over
		o.Kind = model.ScheduleChildren
	}
	if o.Kind >= model.Await && o.Kind != model.Again && !h.room() {
		o.Kind = model.Finish
	}
	if o.Kind == model.ScheduleChildren && c.Round != 0 && h.flip("rejoin") {
		o.Kind = model.Rejoin
	}
	if c.Round < 0 && c.Joins() && h.flip("more of a stream") {
		o.Kind = model.Rejoin
	}
	switch o.Kind {
	case model.Next:
		o.Step, o.State = one(h, steps, "step"), h.payload()
		switch {
		case h.rarely("kept"):
			keep = true
		case h.rarely("delayed"):
			o.Delay = one(h, delays, "delay")
		case h.rarely("timed"):
			o.At = h.time()
		}
	case model.Retry:
		o.State, o.Delay = h.payload(), one(h, delays, "delay")
		if h.flip("with an error") {
			o.Err = "try " + number(c.Attempt)
		}
	case model.Again:
		if o.Delay = one(h, delays, "delay"); h.flip("with a state") {
			o.State = h.payload()
		} else {
			o.Unbegun = h.flip("gives way")
		}
	case model.Await:
		o.Step, o.State, o.Names = one(h, steps, "step"), h.payload(), []string{one(h, names, "name")}
		if second := one(h, names, "name"); h.flip("set") && second != o.Names[0] {
			o.Names = append(o.Names, second)
		}
		if h.rarely("timeout") {
			o.Timeout = one(h, []time.Duration{time.Second, time.Minute}, "timeout")
		} else if h.rarely("until") {
			o.At = h.time()
		}
	case model.ScheduleChildren:
		o.Step, o.State = one(h, steps, "step"), h.payload()
		if !h.rarely("childless") {
			o.Children = h.specs(3)
		}
		n := len(o.Children)
		if n > 0 && h.flip("stream") {
			h.stream(&o)
			break
		}
		if n > 0 && h.flip("graph") {
			o.Graph = h.graph(o.Children)
		}
		if n > 0 && h.flip("policy") {
			h.policy(&o, n)
		}
	case model.Rejoin:
		o.Step, o.State = one(h, steps, "step"), h.payload()
		if c.Round < 0 && !h.rarely("of the whole round") {
			h.stream(&o)
		} else {
			h.policy(&o, 3)
		}
	case model.Finish:
		o.Result = h.payload()
	case model.Fail:
		o.Err, o.Failure = "failed "+number(h.uid()), "decided"
	}
	if (o.Kind == model.Finish || o.Kind == model.Fail) && h.flip("unless") {
		if o.Step, o.Unless = one(h, steps, "step"), []string{one(h, names, "name")}; h.flip("with a state") {
			o.State = h.payload()
		}
	}
	return o, keep
}

// policy gives an outcome the policy of a join of n children.
func (h *history) policy(o *model.Outcome, n int) {
	o.Policy = &model.Policy{Quorum: h.upTo(n+1, "quorum") - 1, Failures: h.upTo(n+1, "failures") - 1, Ends: h.upTo(n+1, "ends") - 1,
		CancelRest: h.upTo(3, "rest") == 1}
	h.bound(o)
}

// bound lets signals and times end the wait for children.
func (h *history) bound(o *model.Outcome) {
	if h.flip("or a signal") {
		o.Names = []string{one(h, names, "name")}
	}
	if h.rarely("timeout") {
		o.Timeout = one(h, []time.Duration{time.Second, time.Minute}, "timeout")
	} else if h.rarely("until") {
		o.At = h.time()
	}
}

// graph makes children nodes of a graph. Of these at most the first has a deadline: where several
// are over theirs, a sweep that ends them by pages wakes some in between.
func (h *history) graph(nodes []model.Spec) *model.Graph {
	g := &model.Graph{}
	backwards := h.flip("backwards")
	for to := range nodes {
		g.Nodes = append(g.Nodes, "n"+number(to))
		if nodes[to].Key, nodes[to].Scope = "", model.ScopeNone; to > 0 {
			nodes[to].Life = 0
		}
		for from := range to {
			if !h.flip("edge") {
				continue
			}
			l := model.Link{From: from, To: to, Needs: one(h, []model.Need{model.NeedsDone, model.NeedsDone, model.NeedsEnd, model.NeedsFailed, model.NeedsAny}, "needs")}
			if backwards {
				l.From, l.To = l.To, l.From
			}
			g.Edges = append(g.Edges, l)
		}
	}
	members := make([]int, len(nodes))
	for _, l := range g.Edges {
		if l.Needs == model.NeedsAny {
			members[l.To]++
		}
	}
	for n, of := range members {
		if of > 0 {
			if g.Any == nil {
				g.Any = make([]int, len(nodes))
			}
			g.Any[n] = 1
			if of > 1 && h.flip("all of the quorum") {
				g.Any[n] = of
			}
		}
	}
	return g
}

// someID returns the id of an instance that meets where, or 0.
func (h *history) someID(where func(*model.Instance) bool) model.ID {
	all := h.model.Instances(func(i *model.Instance) bool { return h.ids[i.ID] != 0 && where(i) })
	if len(all) == 0 {
		return 0
	}
	return one(h, all, "instance").ID
}

func (h *history) address() model.Address {
	if h.rarely("by key") {
		return model.Address{Key: one(h, keys[2:], "key")}
	}
	if h.flip("to a parked one") {
		if id := h.someID(func(i *model.Instance) bool { return i.Status == model.AwaitingSignal }); id != 0 {
			return model.Address{ID: id}
		}
	}
	return model.Address{ID: h.someID(func(*model.Instance) bool { return true })}
}

// payload returns a number as JSON. No two are equal, and some have more bytes behind them than a
// socket's buffer holds.
func (h *history) payload() string {
	n := number(h.uid())
	if rapid.IntRange(0, 99).Draw(h.t, "size") < 99 {
		return n
	}
	return `"` + n + strings.Repeat(" and more", 30_000) + `"`
}
