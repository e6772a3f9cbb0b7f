package dag

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gendurable/gendurable/fsm"
)

// Value is an argument for a node: the input of the graph ([In]), the result of a node, or
// something made of results ([All], [Maybe], [Failed]). Only this package makes Values.
type Value[T any] struct {
	part

	read func(r *reader) (T, error)
}

// part is a value without its type.
type part struct {
	graph   any // the *Graph; nil: it is no value
	input   bool
	sources []source
	quorum  int             // of the sources with need any, how many
	bad     error           // what is wrong with it
	added   map[string]need // by the prefix of their names: what decision points have added, which has to end, too
}

func (p part) of() part { return p }

// Any is a [Value] of any type.
type Any interface{ of() part }

// source is a node that has to end before a value is there.
type source struct {
	node string
	need need
}

// need says how a node has to end.
type need int

const (
	done need = iota
	ended
	failed
	anyDone // it is one of a quorum
)

func (n need) String() string { return [...]string{"done", "ended", "failed", "one of a quorum"}[n] }

// reader reads values: in a node the values that it has waited for, at the end of the graph all.
type reader struct {
	input any
	visit fsm.AnyVisit
	root  bool
}

// resultOf returns how to read the result of a node, which has its own machine.
func resultOf[I, T any](machine *fsm.Machine[I, T], name string) func(*reader) (T, error) {
	return func(r *reader) (result T, err error) {
		if !r.root {
			return machine.Upstream(r.visit, name)
		}
		for _, c := range machine.Children(r.visit) {
			if c.Node == name {
				return c.Result()
			}
		}
		return result, fmt.Errorf("node %.80q has no row: it was not inserted, or was deleted", name)
	}
}

// In returns the input of the graph. The input is stored with every node that takes it, so pass
// large data by reference.
func In[I, R any](g *Graph[I, R]) Value[I] {
	return Value[I]{part{graph: g, input: true}, func(r *reader) (I, error) { return r.input.(I), nil }} //nolint:forcetypeassert // check has compared the graphs
}

// Ended says how a node has ended.
type Ended[T any] struct {
	Value T
	Err   error // a *[fsm.FailedError] if the node has failed, or was skipped
}

// Maybe returns a value that is there once a node has ended, whether it is done or has failed.
func Maybe[T any](v Value[T]) Value[Ended[T]] {
	var out Value[Ended[T]]
	out.part = v.needing(ended)
	out.read = func(r *reader) (o Ended[T], err error) {
		o.Value, o.Err = v.read(r)
		if _, ok := errors.AsType[*fsm.FailedError](o.Err); o.Err != nil && !ok {
			return o, o.Err
		}
		return o, nil
	}
	return out
}

// Failed returns the error of a node, a *[fsm.FailedError], once the node has failed; use it e.g.
// to undo something. If the node is done instead, the node that takes the value is skipped.
func Failed[T any](v Value[T]) Value[error] {
	var out Value[error]
	out.part = v.needing(failed)
	out.read = func(r *reader) (error, error) {
		_, err := v.read(r)
		if _, ok := errors.AsType[*fsm.FailedError](err); ok {
			return err, nil
		}
		return nil, err
	}
	return out
}

// needing returns the part with another need of its sources.
func (p part) needing(n need) part {
	of := p.sources
	p.sources = nil
	for _, s := range of {
		p.sources = append(p.sources, source{s.node, n})
	}
	if p.added != nil {
		added := make(map[string]need, len(p.added))
		for from := range p.added {
			added[from] = n
		}
		if p.added = added; n == failed && p.bad == nil {
			p.bad = errors.New("takes the failure of nodes that a decision point adds: take their results by Added")
		}
	}
	if p.quorum > 0 && p.bad == nil {
		p.bad = errors.New("takes a quorum that Ended or Failed changes: take the Quorum itself")
	}
	return p
}

// Quorum returns the results of the nodes that are done, in the order of its arguments, as soon as
// k are done. More than k may be done by then. Nothing waits for the other nodes, which go on. If
// so many nodes fail that k can never be done, the node that takes the value is skipped. Each of
// values has to be the result of a node, and a node may take only one Quorum.
func Quorum[T any](k int, values ...Value[T]) Value[[]T] {
	out := All(values...)
	out.quorum = k
	if k < 1 || k > len(values) {
		out.bad = fmt.Errorf("a quorum of %d of %d values, want 1 to all of them", k, len(values))
	}
	for i := range out.sources {
		if out.sources[i].need != done {
			out.bad = errors.New("a quorum of values that are not the results of nodes: give Quorum what Do and its like return")
		}
		out.sources[i].need = anyDone
	}
	if len(out.sources) != len(values) || out.added != nil {
		out.bad = errors.New("a quorum of values that are not the results of nodes: give Quorum what Do and its like return")
	}
	out.read = func(r *reader) ([]T, error) {
		there := []T{}
		var first error
		for _, v := range values {
			one, err := v.read(r)
			_, failed := errors.AsType[*fsm.FailedError](err)
			switch {
			case err == nil:
				there = append(there, one)
			case !failed && !errors.Is(err, fsm.ErrNotTerminal):
				return nil, err
			case first == nil:
				first = err
			}
		}
		if len(there) < k {
			return nil, first
		}
		return there, nil
	}
	return out
}

// All returns the results of several nodes, in this order.
func All[T any](values ...Value[T]) Value[[]T] {
	var out Value[[]T]
	for i, v := range values {
		if i == 0 {
			out.part = v.part
			continue
		}
		out.part = out.with(v.part)
	}
	out.read = func(r *reader) ([]T, error) {
		all := make([]T, len(values))
		var err error
		for i, v := range values {
			if all[i], err = v.read(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return out
}

// After returns a value that is there only once the nodes behind others have ended, too: an order
// without data. These nodes have to be done, unless Maybe or Failed says otherwise.
func After[T any](v Value[T], others ...Any) Value[T] {
	for _, o := range others {
		v.part = v.with(o.of())
	}
	return v
}

// with adds the nodes for which another value waits. It marks a mixture of values of several
// graphs.
func (p part) with(other part) part {
	if p.graph != other.graph {
		p.graph = mixed{}
	}
	p.input = p.input || other.input
	switch {
	case p.bad != nil:
	case other.bad != nil:
		p.bad = other.bad
	case p.quorum > 0 && other.quorum > 0:
		p.bad = errors.New("takes more than one quorum: put a node between them")
	}
	p.quorum = max(p.quorum, other.quorum)
	if other.added != nil {
		p.added = maps.Clone(p.added)
		if p.added == nil {
			p.added = map[string]need{}
		}
		for from, n := range other.added {
			if _, there := p.added[from]; !there || n == done { // done is ended, too
				p.added[from] = n
			}
		}
	}
	p.sources = append(slices.Clip(p.sources), other.sources...)
	return p
}

// mixed stands for the graph of a value that is made of values of several.
type mixed struct{}

// edges returns one source per node: one that is to be done, or to have failed, also has ended.
func edges(of []source) (out []source, err error) {
	at := map[string]int{}
	for _, s := range of {
		i, known := at[s.node]
		switch {
		case !known:
			at[s.node] = len(out)
			out = append(out, s)
		case out[i].need == anyDone || s.need == anyDone:
			return nil, fmt.Errorf("it takes node %.80q in a quorum and by another value: take it once", s.node)
		case out[i].need == s.need || s.need == ended:
		case out[i].need == ended:
			out[i].need = s.need
		default:
			return nil, fmt.Errorf("it takes node %.80q both as %s and as %s: take it once", s.node, out[i].need, s.need)
		}
	}
	return out, nil
}
