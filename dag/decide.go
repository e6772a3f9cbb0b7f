package dag

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

// Branch is a prepared node. The graph has such a node only if a decision point adds it, as many
// times as it does. [Prepare] makes a Branch.
type Branch[A, B any] struct {
	graph   any
	name    string
	options options
	machine *fsm.Machine[A, B]
	spec    func(argument A) fsm.Spec
	labels  func(s fsm.Spec, labels map[string]string) fsm.Spec
}

// Prepare declares nodes that a [Decide] may add. Each of them runs f with its own argument, and
// has the result of f. Their machine is named after the graph and the branch: "graph.branch".
func Prepare[I, R, A, B any](g *Graph[I, R], name string, f func(context.Context, A) (B, error), opts ...Option) *Branch[A, B] {
	o := collect(opts)
	g.named(name)
	if o.bad != nil {
		g.fault(fmt.Sprintf("nodes[%.80q]", name), o.bad)
	}
	full := g.machine.Name() + "." + name
	machine := fsm.Declare[A, B](full, fsm.Version(g.machine.Version()), fsm.Queue(g.queue()))
	var zero A
	if o.keyed(machine.New(zero)) {
		g.fault(fmt.Sprintf("nodes[%.80q]", name), errKeyed)
	}
	g.machines = append(g.machines, machine.Job(f).Retry(o.retry))
	// A spec without a queue gets the queue of the graph's instance, which may not be the machine's.
	unqueued := fsm.Declare[A, B](full, fsm.Version(g.machine.Version()))
	return &Branch[A, B]{g, name, o, machine, unqueued.New, g.labelled}
}

// Adder collects the nodes that a decision point adds. It is valid only during the call that
// received it.
type Adder struct {
	graph any
	node  string
	at    fsm.Info
	ahead func(branch string) []ahead // the nodes that wait for the nodes added of a branch
	nodes []fsm.GraphNode
	count map[string]int
	bad   error
}

// ahead is a node that waits for nodes that a decision point adds.
type ahead struct {
	node string
	need need
}

// Add adds a node of the branch to the graph, with an argument. The node is inserted in the commit
// of the decision point's result, and runs then. Its name is made of the decision point, the branch
// and a number: "decide.branch.0".
func (b *Branch[A, B]) Add(to *Adder, argument A) {
	if to.graph != b.graph {
		to.bad = fmt.Errorf("branch %.80q belongs to another graph: prepare it in this one", b.name)
		return
	}
	n := fsm.Node(fmt.Sprintf("%s%d", prefix(to.node, b.name), to.count[b.name]), b.options.spec(b.labels(b.spec(argument), to.at.Labels)))
	to.count[b.name]++
	for _, a := range to.ahead(b.name) {
		if a.need == ended {
			n = n.BeforeEnd(a.node)
		} else {
			n = n.Before(a.node)
		}
	}
	to.nodes = append(to.nodes, n)
}

func prefix(node, branch string) string { return node + "." + branch + "." }

// Decide adds a decision point: a node as [Do] makes it, which may add prepared nodes to the graph
// by [Branch.Add]. The commit of its result adds all of them, or none. The graph waits for them;
// [Added] lets a node wait for them, too.
func Decide[I, R, A, B any](g *Graph[I, R], name string, a Value[A], f func(context.Context, A, *Adder) (B, error), opts ...Option) Value[B] {
	o := collect(opts)
	if f == nil {
		o.bad = errNilFunction
	}
	machine := declare[B](g, name)
	define := machine.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[I, B]) (fsm.Outcome, error) {
		one, err := a.read(&reader{input: v.State, visit: v})
		if err != nil {
			return nil, err
		}
		to := &Adder{graph: g, node: name, at: v.Info, count: map[string]int{}, ahead: func(branch string) []ahead { return g.ahead[prefix(name, branch)] }}
		result, err := f(ctx, one, to)
		if err == nil {
			err = to.bad
		}
		if err != nil {
			return nil, err
		}
		return v.Done(result).Add(to.nodes...), nil
	}).To())
	return enter(g, name, &o, machine, define, []Any{a})
}

// Added returns the results of the nodes that a decision point has added of a branch, in the order
// in which it added them; none if it has added none. The node that takes the value waits for the
// decision point and for exactly these nodes: the branches converge there. decision has to be the
// Value that [Decide] returned.
func Added[T, A, B any](decision Value[T], branch *Branch[A, B]) Value[[]B] {
	out := Value[[]B]{part: decision.part}
	switch {
	case branch == nil || len(decision.sources) != 1 || decision.sources[0].need != done:
		out.bad = errors.New("Added needs the value that Decide returned, and a branch of the graph")
		return out
	case branch.graph != decision.graph:
		out.graph = mixed{}
		return out
	}
	from := prefix(decision.sources[0].node, branch.name)
	out.added = map[string]need{from: done}
	out.read = func(r *reader) ([]B, error) {
		if _, err := decision.read(r); err != nil {
			return nil, err
		}
		nodes := branch.machine.Upstreams(r.visit)
		if r.root {
			nodes = branch.machine.Children(r.visit)
		}
		results := []B{}
		for _, n := range nodes {
			if !strings.HasPrefix(n.Node, from) {
				continue
			}
			one, err := n.Result()
			if err != nil {
				return nil, err
			}
			results = append(results, one)
		}
		return results, nil
	}
	return out
}
