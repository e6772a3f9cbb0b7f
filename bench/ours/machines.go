package ours

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// The names of the machines.
var (
	Noop  = fsm.Declare[Order, Result]("noop")
	Chain = fsm.Declare[Order, Result]("chain", fsm.Initial("step0"))
)

type visit = fsm.Visit[Order, Result]

// NoopMachine is a job that does nothing except call ran.
func NoopMachine(ran func(Order)) fsm.Definition {
	return Noop.Job(func(_ context.Context, o Order) (Result, error) {
		ran(o)
		return Result{OK: true}, nil
	})
}

// Together is a job whose step may be called for many instances at a time.
var Together = fsm.Declare[Order, Result]("together", fsm.Initial("start"))

// togetherWithin is how long a batch waits for more: little, so that the last ones of a drain do
// not wait in vain.
const togetherWithin = 20 * time.Millisecond

// TogetherMachine has a batch step of so many instances that does nothing except call ran for each;
// with a size of 1 it is an ordinary step.
func TogetherMachine(size int, ran func()) fsm.Definition {
	one := func(v *visit) fsm.Outcome {
		ran()
		return v.Done(Result{OK: true})
	}
	if size == 1 {
		return Together.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return one(v), nil }).To())
	}
	return Together.Define(fsm.BatchStep("start", func(_ context.Context, visits []*visit) ([]fsm.Outcome, error) {
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			outcomes[i] = one(v)
		}
		return outcomes, nil
	}, fsm.BatchOf(size), fsm.Within(togetherWithin)).To())
}

// ChainMachine has so many steps that do nothing except call ran.
func ChainMachine(steps int, ran func()) fsm.Definition {
	defs := make([]fsm.StepDef[Order, Result], steps)
	for i := range steps {
		next, last := "step"+strconv.Itoa(i+1), i == steps-1
		def := fsm.Step("step"+strconv.Itoa(i), func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			if last {
				return v.Done(Result{OK: true}), nil
			}
			return v.Next(next, v.State), nil
		})
		if last {
			defs[i] = def.To()
		} else {
			defs[i] = def.To(next)
		}
	}
	return Chain.Define(defs...)
}

// Loop is an instance that runs one step Order.N times.
var Loop = fsm.Declare[Order, Result]("loop", fsm.Initial("loop"))

// LoopMachine calls ran in each step.
func LoopMachine(ran func()) fsm.Definition {
	return Loop.Define(fsm.Step("loop", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		ran()
		o := v.State
		if o.N--; o.N == 0 {
			return v.Done(Result{OK: true}), nil
		}
		return v.Next("loop", o), nil
	}).To("loop"))
}

// Waiter is an instance that awaits Wake again and again, for ever.
var (
	Waiter = fsm.Declare[Order, Result]("waiter", fsm.Initial("park"))
	Wake   = fsm.DeclareSignal[Order]("wake")
)

// WaiterMachine calls woken with the payload of each signal, and parked before each time that it
// awaits one. It goes back through the step park, since progress consumes the signal.
func WaiterMachine(parked func(), woken func(Order)) fsm.Definition {
	return Waiter.Define(
		fsm.Step("park", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			parked()
			return v.Await("woken", v.State, Wake), nil
		}).To("woken"),
		fsm.Step("woken", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			orders, err := Wake.All(v)
			if err != nil {
				return nil, err
			}
			for _, o := range orders {
				woken(o)
			}
			return v.Next("park", v.State), nil
		}).To("park"))
}

// Parent is an instance that spawns Order.N no-op jobs and ends when they have ended.
var Parent = fsm.Declare[Order, Result]("parent", fsm.Initial("spawn"))

// ParentMachine checks that all children are there, and calls ran in each of its two steps.
func ParentMachine(ran func()) fsm.Definition {
	return Parent.Define(
		fsm.Step("spawn", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			children := make([]fsm.Spec, v.State.N)
			for i := range children {
				children[i] = Noop.New(NewOrder(i))
			}
			return v.ScheduleChildren("join", v.State, children...), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			if n := len(Noop.Children(v)); n != v.State.N {
				return v.Fail(fmt.Errorf("%d of %d children joined", n, v.State.N)), nil
			}
			return v.Done(Result{OK: true}), nil
		}).To())
}

// Assembly is an instance that spawns some votes, goes on when it has what it needs, and ends.
var (
	Assembly = fsm.Declare[Order, Result]("assembly", fsm.Initial("call"))
	Vote     = fsm.Declare[Order, Result]("vote", fsm.Initial("vote"))
)

// AssemblyMachine has so many votes, of which it needs some by the policy of join. It calls joined
// when the joining step begins.
func AssemblyMachine(votes, needed int, join func(*fsm.ChildrenOutcome) *fsm.ChildrenOutcome, joined func()) fsm.Definition {
	return Assembly.Define(
		fsm.Step("call", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			children := make([]fsm.Spec, votes)
			for i := range children {
				children[i] = Vote.New(NewOrder(min(i, 1)))
				if i >= needed {
					children[i] = Vote.New(NewOrder(2))
				}
			}
			return join(v.ScheduleChildren("join", v.State, children...)), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			joined()
			return v.Done(Result{OK: true}), nil
		}).To())
}

// VoteMachine calls last in the first vote of each assembly, which then is the last needed. Those
// that are not needed wait for Wake.
func VoteMachine(last func(context.Context) error) fsm.Definition {
	return Vote.Define(fsm.Step("vote", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
		switch v.State.N {
		case 0:
			if err := last(ctx); err != nil {
				return nil, err
			}
		case 2:
			return v.Await("vote", NewOrder(1), Wake), nil
		}
		return v.Done(Result{OK: true}).Discard(), nil
	}).To("vote"))
}

// Layers is how many layers the graphs of Root have.
const Layers = 10

// Edges returns how many edges a graph of n nodes has: two lead to each node behind the first
// layer, unless a layer is a single node.
func Edges(n int) int {
	width := n / Layers
	return width * (Layers - 1) * min(2, width)
}

// Root is an instance that makes a graph of Order.N no-op jobs in layers, and ends when they have
// ended.
var Root = fsm.Declare[Order, Result]("root", fsm.Initial("plant"))

// RootMachine checks that all nodes are there, and calls ran in each of its two steps.
func RootMachine(ran func()) fsm.Definition {
	return Root.Define(
		fsm.Step("plant", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			width := v.State.N / Layers
			nodes := make([]fsm.GraphNode, v.State.N)
			name := func(layer, i int) string { return "n" + strconv.Itoa(layer*width+i%width) }
			for n := range nodes {
				layer, i := n/width, n%width
				nodes[n] = fsm.Node(name(layer, i), Noop.New(NewOrder(n)))
				if layer > 0 {
					nodes[n] = nodes[n].After(name(layer-1, i))
				}
				if layer > 0 && width > 1 {
					nodes[n] = nodes[n].After(name(layer-1, i+1))
				}
			}
			return v.ScheduleGraph("join", v.State, nodes...), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			if n := len(Noop.Children(v)); n != v.State.N {
				return v.Fail(fmt.Errorf("%d of %d nodes joined", n, v.State.N)), nil
			}
			return v.Done(Result{OK: true}), nil
		}).To())
}
