package dag

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
)

// Option changes a node: see [Retry] and [With].
type Option func(*options)

type options struct {
	retry fsm.RetryPolicy
	with  []func(fsm.Spec) fsm.Spec
	bad   error
}

// Retry sets the policy by which the function of a node is retried: fsm.RetryPolicy{} unless given.
func Retry(p fsm.RetryPolicy) Option { return func(o *options) { o.retry = p } }

// With changes the spec of the instances that do the work of a node: its priority, its labels, its
// deadline, its queue in place of the graph's or of its machine's. That is the node itself, or one
// that a decision point adds; of [Each] and [Some] the pieces, each with its element as the state;
// of [Call] the instance that it inserts. Only the latter may have a key.
func With(change func(fsm.Spec) fsm.Spec) Option {
	return func(o *options) {
		if change == nil {
			o.bad = errors.New("nil function in With")
			return
		}
		o.with = append(o.with, change)
	}
}

func (o *options) spec(s fsm.Spec) fsm.Spec {
	for _, change := range o.with {
		s = change(s)
	}
	return s
}

// keyed reports whether With gives a key to specs of this machine, as far as one with a zero state
// shows it.
func (o *options) keyed(s fsm.Spec) (keyed bool) {
	defer func() {
		if recover() != nil { // the zero state is nothing that it expects
			keyed = false
		}
	}()
	return o.spec(s).Options().Key != ""
}

var errKeyed = errors.New("With gives it a key: if another instance held the key, this node would be missing; only Call takes one")

func collect(opts []Option) (o options) {
	for _, option := range opts {
		if option == nil {
			o.bad = errors.New("nil option")
			continue
		}
		option(&o)
	}
	return o
}

var errNilFunction = errors.New("nil function")

// Do adds a node: f runs once its argument is there, and its result is the result of the node. f is
// retried as [Retry] says, and gets its attempt and its idempotency key by [fsm.InfoFrom].
func Do[I, R, A, B any](g *Graph[I, R], name string, a Value[A], f func(context.Context, A) (B, error), opts ...Option) Value[B] {
	return add(g, name, f == nil, opts, func(ctx context.Context, r *reader) (result B, err error) {
		one, err := a.read(r)
		if err != nil {
			return result, err
		}
		return f(ctx, one)
	}, a)
}

// Do2 is [Do] with two arguments.
func Do2[I, R, A, B, C any](g *Graph[I, R], name string, a Value[A], b Value[B], f func(context.Context, A, B) (C, error), opts ...Option) Value[C] {
	return add(g, name, f == nil, opts, func(ctx context.Context, r *reader) (result C, err error) {
		one, err := a.read(r)
		if err != nil {
			return result, err
		}
		two, err := b.read(r)
		if err != nil {
			return result, err
		}
		return f(ctx, one, two)
	}, a, b)
}

// Do3 is [Do] with three arguments.
func Do3[I, R, A, B, C, D any](g *Graph[I, R], name string, a Value[A], b Value[B], c Value[C],
	f func(context.Context, A, B, C) (D, error), opts ...Option,
) Value[D] {
	return add(g, name, f == nil, opts, func(ctx context.Context, r *reader) (result D, err error) {
		one, err := a.read(r)
		if err != nil {
			return result, err
		}
		two, err := b.read(r)
		if err != nil {
			return result, err
		}
		three, err := c.read(r)
		if err != nil {
			return result, err
		}
		return f(ctx, one, two, three)
	}, a, b, c)
}

// add adds a node whose machine is one function.
func add[I, R, T any](g *Graph[I, R], name string, none bool, opts []Option, run func(context.Context, *reader) (T, error), args ...Any) Value[T] {
	o := collect(opts)
	if none {
		o.bad = errNilFunction
	}
	machine := declare[T](g, name)
	define := machine.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[I, T]) (fsm.Outcome, error) {
		result, err := run(ctx, &reader{input: v.State, visit: v})
		if err != nil {
			return nil, err
		}
		return v.Done(result), nil
	}).To())
	return enter(g, name, &o, machine, define, args)
}

// Call adds a node that inserts an instance of another machine with this state, and waits for its
// end. The instance is in the queue that [With] or its machine names, else in the graph's. The node
// has the result of that instance, and fails if it fails.
func Call[I, R, S, T any](g *Graph[I, R], name string, state Value[S], of *fsm.Machine[S, T], opts ...Option) Value[T] {
	o := collect(opts)
	machine := declare[T](g, name)
	define := machine.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[I, T]) (fsm.Outcome, error) {
			arg, err := state.read(&reader{input: v.State, visit: v})
			if err != nil {
				return nil, err
			}
			return v.ScheduleChildren("join", v.State, hidden.InQueue(o.spec(g.labelled(of.New(arg), v.Labels)), v.Queue)), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[I, T]) (fsm.Outcome, error) {
			all := of.Children(v)
			if len(all) == 0 {
				return v.Fail(errors.New("the instance that Call inserts was not inserted: another instance holds its key")), nil
			}
			result, err := all[0].Result()
			if _, ok := errors.AsType[*fsm.FailedError](err); ok {
				return v.Fail(err), nil
			}
			if err != nil {
				return nil, err
			}
			return v.Done(result), nil
		}).To(),
	)
	return enter(g, name, &options{retry: o.retry, bad: o.bad}, machine, define, []Any{state})
}

// declare returns the machine of a node.
func declare[T, I, R any](g *Graph[I, R], name string) *fsm.Machine[I, T] {
	return fsm.Declare[I, T](g.machine.Name()+"."+name, fsm.Version(g.machine.Version()), fsm.Queue(g.queue()))
}

// queue returns the queue that the graph's machine declares.
func (g *Graph[I, R]) queue() string {
	var zero I
	return g.machine.New(zero).Options().Queue
}

// labelled returns a spec with the labels of the graph, if it hands them on.
func (g *Graph[I, R]) labelled(s fsm.Spec, labels map[string]string) fsm.Spec {
	if g.labels {
		for name, value := range labels {
			s = s.Label(name, value)
		}
	}
	return s
}

// enter adds a node to the graph, and returns its value.
func enter[I, R, T any](g *Graph[I, R], name string, o *options, machine *fsm.Machine[I, T], define *fsm.Defined[I, T], args []Any) Value[T] {
	field := fmt.Sprintf("nodes[%.80q]", name)
	g.named(name)
	if o.bad != nil {
		g.fault(field, o.bad)
	}
	n := &node[I]{name: name, spec: func(input I, root fsm.Info) fsm.Spec {
		return o.spec(g.labelled(machine.New(input).Queue(root.Queue), root.Labels))
	}}
	var zero I
	if o.keyed(machine.New(zero)) {
		g.fault(field, errKeyed)
	}
	all := args[0].of()
	for _, a := range args {
		g.check(field, a.of())
	}
	for _, a := range args[1:] {
		all = all.with(a.of())
	}
	if all.bad != nil && !slices.ContainsFunc(args, func(a Any) bool { return a.of().bad != nil }) {
		g.fault(field, all.bad)
	}
	n.input, n.quorum = all.input, all.quorum
	for from, need := range all.added {
		if g.ahead == nil {
			g.ahead = map[string][]ahead{}
		}
		g.ahead[from] = append(g.ahead[from], ahead{name, need})
	}
	var err error
	if n.edges, err = edges(all.sources); err != nil {
		g.fault(field, err)
	}
	g.nodes, g.machines = append(g.nodes, n), append(g.machines, define.Retry(o.retry))
	return Value[T]{part{graph: g, sources: []source{{node: name}}}, resultOf(machine, name)}
}
