package pairs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// feature is one thing that machines can do, as a driver: how to make it, what the world does for
// it, and how to check it. All but name and steps may be nil.
type feature struct {
	name string
	// steps are the steps that an instance goes through. The first one has the feature's name. The
	// last one returns rig.onward, with which the instance takes the next feature of its life.
	steps func(r *rig) []fsm.StepDef[state, int]
	// define changes the definition of the machine.
	define func(r *rig, d *fsm.Defined[state, int]) *fsm.Defined[state, int]
	// config changes the engine's Config.
	config func(r *rig, c *engine.Config)
	// prepare runs before the first instance is inserted.
	prepare func(r *rig) error
	// make returns the spec of an instance, before spec of all features changes it; nil: one of the
	// newest version.
	make func(s state) fsm.Spec
	// spec changes the spec of an instance. The state says which: state.Kind has its place.
	spec func(r *rig, s fsm.Spec, at state) fsm.Spec
	// insert inserts the root, in place of Engine.Insert.
	insert func(r *rig, s fsm.Spec) (fsm.ID, error)
	// serve does what the world outside does for instances that wait, such as to send signals. It runs
	// whenever nothing can run, until the case has ended.
	serve func(r *rig) error
	// worth is the result of an instance that takes the feature, by the result of the rest of its
	// life; nil: stageWorth more.
	worth func(rest int) int
	// bound sets limits to the least with which the feature works, for the fault "bound".
	bound func(l *engine.Limits)
	// check runs when every instance has ended, and before the GC has deleted any for good.
	check func(r *rig) error
	// end runs before the last month, and removes the instances that the feature has put beside the
	// population.
	end func(r *rig) error
}

// stageWorth is what a feature without children adds to the result. So a result tells how many
// features an instance has really gone through.
const stageWorth = 10

var registry = map[string]*feature{}

// register adds a feature. Each file feature_*_test.go calls it once per feature.
func register(f feature) *feature {
	if registry[f.name] != nil {
		panic("two features are called " + f.name)
	}
	registry[f.name] = &f
	return &f
}

// names returns the names of all features, in order.
func names() []string { return slices.Sorted(maps.Keys(registry)) }

// kind is the place of an instance in its population.
type kind string

const (
	root  kind = "root"
	child kind = "child"
	node  kind = "node"
)

// state is the state of every instance.
type state struct {
	Path   string   `json:"path"` // "root", "root/a", …: unique in the case
	Kind   kind     `json:"kind"`
	Life   []string `json:"life"` // as it began
	Left   []string `json:"left"` // the features to come, the first of which it takes now
	Sum    int      `json:"sum"`  // the result so far
	Seen   int      `json:"seen"` // for the feature that it takes: how far it is
	Lost   string   `json:"lost"` // a child that failed, of a feature that goes on without it
	Old    bool     `json:"old"`  // it has not been converted from the older version
	Edited bool     `json:"edited"`
	Shown  []fsm.ID `json:"shown,omitempty"` // the ended children that a race has seen
}

type (
	visit = fsm.Visit[state, int]
	step  = func(ctx context.Context, v *visit) (fsm.Outcome, error)
)

var (
	unit    = fsm.Declare[state, int]("unit", fsm.Version(2), fsm.StateSince(1), fsm.ResultSince(1))
	oldUnit = fsm.Declare[state, int]("unit", fsm.Version(1))

	// keyedUnit is unit for a root with the feature "key": the declaration gives it its key.
	keyedUnit = fsm.Declare[state, int]("unit", fsm.Version(2), fsm.KeyBy(func(s state) fsm.Key { return fsm.Key("key:" + s.Path) }))
)

// worth is the result of an instance that is done with a life.
func worth(life []string) int {
	if len(life) == 0 {
		return 1
	}
	rest := worth(life[1:])
	if f := registry[life[0]]; f.worth != nil {
		return f.worth(rest)
	}
	return stageWorth + rest
}

// taken reports whether an instance with a life takes a feature itself, and not its children.
func taken(life []string, name string) bool {
	for _, one := range life {
		switch {
		case one == name:
			return true
		case registry[one].worth != nil:
			return false
		}
	}
	return false
}

// sumOf is the worth of a feature with n children, whose results its instance adds up.
func sumOf(n int) func(int) int { return func(rest int) int { return n*rest + 1 } }

// beginning is the state of an instance of the population that begins a life.
func beginning(path string, k kind, life []string) state {
	return state{Path: path, Kind: k, Life: life, Left: life}
}

// spec returns the spec of an instance, with all that the case's features say of it.
func (r *rig) spec(s state) fsm.Spec {
	out := unit.New(s)
	if s.Kind == root && slices.Contains(s.Life, "key") && !slices.Contains(s.Life, "kept") { // which needs another key
		out = keyedUnit.New(s)
	}
	for _, f := range r.features {
		if f.make != nil {
			out = f.make(s)
		}
	}
	if len(s.Left) > 0 {
		out = out.Step(s.Left[0])
	}
	for _, f := range r.features {
		if f.spec != nil {
			out = f.spec(r, out, s)
		}
	}
	return r.sided(out, s)
}

// children returns the specs of n children, which take the rest of a life.
func (r *rig) children(of state, n int) (specs []fsm.Spec) {
	for i := range n {
		specs = append(specs, r.spec(beginning(fmt.Sprint(of.Path, "/", i), child, of.Left[1:])))
	}
	return specs
}

// node returns a node of a graph, which takes a life.
func (r *rig) node(of state, name string, life []string) fsm.GraphNode {
	return fsm.Node(name, r.spec(beginning(of.Path+"/"+name, node, life)))
}

// onward returns the outcome of an instance that has gone through a feature.
func (r *rig) onward(v *visit, s state) fsm.Outcome {
	s.Left, s.Seen = s.Left[1:], 0
	s.Sum += stageWorth
	return r.take(v, s)
}

// take returns the outcome of an instance that takes the next feature, or is done.
func (r *rig) take(v *visit, s state) fsm.Outcome {
	if len(s.Left) > 0 {
		return v.Next(s.Left[0], s)
	}
	return r.end(v, s)
}

func (r *rig) end(v *visit, s state) fsm.Outcome { return v.Done(s.Sum + 1) }

// joined returns the outcome of an instance whose children have ended. With one that failed it
// fails, too, so that a Restart can run both again.
func (r *rig) joined(v *visit, want int) (fsm.Outcome, error) {
	children := unit.Children(v)
	if len(children) != want {
		r.violate("a join of %d children", "%s joins %d children of %d", v.State.Path, len(children), want)
	}
	s := v.State
	for _, c := range children {
		switch result, err := c.Result(); {
		case c.Status == fsm.StatusFailed:
			return v.Fail(fmt.Errorf("child %d: %s", c.ID, c.Failure)), nil
		case err != nil:
			return nil, err
		default:
			s.Sum += result
		}
	}
	return r.end(v, s), nil
}
