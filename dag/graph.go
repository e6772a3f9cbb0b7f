package dag

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// Graph is a graph that is being declared: the functions of this package add nodes to it, and
// [Graph.Return] makes machines of it. I is the type of its input, R the type of its result. It is
// not safe for concurrent use.
type Graph[I, R any] struct {
	machine  *fsm.Machine[I, R]
	nodes    []*node[I]
	machines []fsm.Definition
	faults   []error
	names    map[string]bool
	labels   bool               // its nodes have its labels
	cancels  bool               // it ends when its value is there
	ahead    map[string][]ahead // by the prefix of their names: the nodes that wait for what decision points add
}

// node is a node of a graph that begins with I.
type node[I any] struct {
	name  string
	spec  func(input I, root fsm.Info) fsm.Spec
	input bool // it takes what the graph begins with
	edges []source

	quorum int // of its edges with need anyDone, how many
}

// New begins the declaration of a graph. The state of the machine is the input of the graph, and
// its result the graph's result. Its nodes run in the queue of its instance, and so do instances of
// [Call] whose machine names no queue, unless [With] says otherwise.
func New[I, R any](machine *fsm.Machine[I, R]) *Graph[I, R] { return &Graph[I, R]{machine: machine} }

// InheritLabels gives the labels of an instance of the graph to its nodes, to the pieces of [Each]
// and [Some], and to the instances of [Call], so that all of it is found by them. [With] may add
// others. It returns the graph.
func (g *Graph[I, R]) InheritLabels() *Graph[I, R] {
	g.labels = true
	return g
}

// stepEnd is the last step of a graph's machine. The first has the name that the machine declares.
const stepEnd = "end"

// Return ends the declaration. Once all nodes have ended, or as [Graph.CancelRest] says, an
// instance of the graph is done with this value, or fails with an error that names the nodes that
// failed. Return gives the machines of the graph and its nodes, for engine.Config.Machines.
// engine.New reports faults of the graph, as of all machines.
func (g *Graph[I, R]) Return(v Value[R]) []fsm.Definition {
	g.check("return", v.part)
	if len(g.nodes) == 0 {
		g.fault("nodes", errors.New("none: the graph needs at least one"))
	}
	if g.cancels && len(v.sources) == 0 && v.added == nil {
		g.fault("return", errThere)
	}
	var zero I
	plant := fsm.Step(g.machine.New(zero).Options().Step, func(_ context.Context, visit *fsm.Visit[I, R]) (fsm.Outcome, error) {
		j := g.plant(visit)
		if g.cancels {
			j = g.wait(j, v.part, nil, len(g.nodes))
		}
		return j, nil
	}).To(stepEnd)
	root := g.machine.Define(plant, fsm.Step(stepEnd, g.end(v)).To())
	if g.cancels {
		root = g.machine.Define(plant, fsm.Step(stepEnd, func(ctx context.Context, visit *fsm.Visit[I, R]) (fsm.Outcome, error) {
			if next := g.goOn(visit, v.part); next != nil {
				return next, nil
			}
			return g.end(v)(ctx, visit)
		}).To(stepEnd, stepReturn), fsm.Step(stepReturn, g.end(v)).To())
	}
	return append([]fsm.Definition{faulty(root, g.faults)}, g.machines...)
}

func (g *Graph[I, R]) plant(v *fsm.Visit[I, R]) *fsm.ChildrenOutcome {
	nodes := make([]fsm.GraphNode, len(g.nodes))
	for i, n := range g.nodes {
		var input I
		if n.input { // the others do without a copy of it
			input = v.State
		}
		nodes[i] = fsm.Node(n.name, n.spec(input, v.Info))
		var some []string
		for _, e := range n.edges {
			switch e.need {
			case anyDone:
				some = append(some, e.node)
			case done:
				nodes[i] = nodes[i].After(e.node)
			case ended:
				nodes[i] = nodes[i].AfterEnd(e.node)
			case failed:
				nodes[i] = nodes[i].AfterFailure(e.node)
			}
		}
		if some != nil {
			nodes[i] = nodes[i].AfterAny(n.quorum, some...)
		}
	}
	return v.ScheduleGraph(stepEnd, v.State, nodes...)
}

func (g *Graph[I, R]) end(returned Value[R]) fsm.StepFunc[I, R] {
	return func(_ context.Context, v *fsm.Visit[I, R]) (fsm.Outcome, error) {
		result, err := returned.read(&reader{input: v.State, visit: v, root: true})
		if err == nil {
			return v.Done(result), nil
		}
		if _, ok := errors.AsType[*fsm.FailedError](err); !ok {
			return nil, err
		}
		if failed := failures(v.Children()); failed != nil {
			err = failed
		}
		return v.Fail(err), nil
	}
}

// failuresMost is how many failed nodes the error of a graph names.
const failuresMost = 10

// failures names the nodes that failed by themselves; nil if none did.
func failures[T any](nodes []fsm.Child[T]) error {
	var texts []string
	more := 0
	for _, n := range nodes {
		switch {
		case n.Status != fsm.StatusFailed || n.Failure == fsm.FailureSkipped:
		case len(texts) == failuresMost:
			more++
		default:
			texts = append(texts, fmt.Sprintf("%s: %s: %.200s", n.Node, n.Failure, n.LastError))
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	if texts == nil {
		return nil
	}
	return fmt.Errorf("nodes have failed: %s", strings.Join(texts, "; "))
}

// named notes the name of a node or a branch.
func (g *Graph[I, R]) named(name string) {
	if g.names == nil {
		g.names = map[string]bool{}
	}
	if g.names[name] {
		g.fault(fmt.Sprintf("nodes[%.80q]", name), errors.New("declared twice: give each node another name"))
	}
	g.names[name] = true
}

// fault notes what is wrong with the graph.
func (g *Graph[I, R]) fault(field string, err error) {
	g.faults = append(g.faults, &fsm.DefinitionError{Machine: g.machine.Name(), Version: g.machine.Version(), Field: field, Err: err})
}

// check notes a fault if a value is zero, or of another graph.
func (g *Graph[I, R]) check(field string, p part) {
	switch {
	case p.graph == nil:
		g.fault(field, errors.New("takes a value that no node has declared"))
	case p.graph != any(g):
		g.fault(field, errors.New("takes a value of another graph"))
	case p.bad != nil:
		g.fault(field, p.bad)
	}
}

// faulty returns a definition with faults that its machine does not see.
func faulty(d fsm.Definition, faults []error) fsm.Definition {
	return hidden.Definition(func() *step.Machine {
		m := hidden.Machine(d)
		m.Faults = append(m.Faults, faults...)
		return m
	})
}
