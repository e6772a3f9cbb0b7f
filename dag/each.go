package dag

import (
	"context"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
)

// Each adds a node that runs f once for each element of a list, side by side. Each run is a
// separate instance, a child of the node, of the machine "graph.node.piece". The node's result has
// their results, in the order of the list; the node fails if one of them does. The list may be as
// long as Limits.Children allows. For an empty list the result is empty.
func Each[I, R, A, B any](g *Graph[I, R], name string, list Value[[]A], f func(context.Context, A) (B, error), opts ...Option) Value[[]B] {
	return spread(g, name, list, f, func(j *fsm.ChildrenOutcome, _ int) *fsm.ChildrenOutcome { return j }, opts,
		func(pieces []fsm.Child[B]) ([]B, error) {
			results := make([]B, len(pieces))
			var first error
			bad := 0
			for i, p := range pieces {
				var err error
				if results[i], err = p.Result(); err == nil {
					continue
				}
				if bad++; first == nil {
					first = fmt.Errorf("piece %d: %w", i, err)
				}
			}
			if bad > 0 {
				return nil, fmt.Errorf("%d of %d pieces have no result, the first: %w", bad, len(pieces), first)
			}
			return results, nil
		})
}

// Piece is what became of one element of the list of a [Some].
type Piece[T any] struct {
	Value  T          `json:"value"`  // its result; zero unless Status is fsm.StatusDone
	Status fsm.Status `json:"status"` // as it was when the node went on: it may not have ended
	Error  string     `json:"error,omitempty"`
}

// Some is [Each] with its own join: join calls the methods of [fsm.ChildrenOutcome] that decide
// when the node goes on, such as Quorum, Race, FailFast, Timeout and CancelRest; n is the length
// of the list. So the pieces need not all be done. The result says what became of each, in the
// order of the list, and the node that takes it decides what follows. [Results] returns the
// results of those that are done.
func Some[I, R, A, B any](g *Graph[I, R], name string, list Value[[]A], f func(context.Context, A) (B, error),
	join func(j *fsm.ChildrenOutcome, n int) *fsm.ChildrenOutcome, opts ...Option,
) Value[[]Piece[B]] {
	if join == nil {
		opts = append(slices.Clip(opts), func(o *options) { o.bad = errNilFunction })
	}
	return spread(g, name, list, f, join, opts, func(pieces []fsm.Child[B]) ([]Piece[B], error) {
		all := make([]Piece[B], len(pieces))
		for i, p := range pieces {
			all[i] = Piece[B]{Status: p.Status, Error: p.LastError}
			if p.Status != fsm.StatusDone {
				continue
			}
			var err error
			if all[i].Value, err = p.Result(); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

// Results returns the results of the pieces that are done.
func Results[T any](pieces []Piece[T]) []T {
	done := []T{}
	for _, p := range pieces {
		if p.Status == fsm.StatusDone {
			done = append(done, p.Value)
		}
	}
	return done
}

// spread adds a node that spawns an instance for each element of a list, and gathers how they
// ended.
func spread[I, R, A, B, T any](g *Graph[I, R], name string, list Value[[]A], f func(context.Context, A) (B, error),
	join func(*fsm.ChildrenOutcome, int) *fsm.ChildrenOutcome, opts []Option, gather func([]fsm.Child[B]) ([]T, error),
) Value[[]T] {
	o := collect(opts)
	piece := fsm.Declare[A, B](g.machine.Name()+"."+name+".piece", fsm.Version(g.machine.Version()), fsm.Queue(g.queue()))
	var zero A
	if o.keyed(piece.New(zero)) {
		g.fault(fmt.Sprintf("nodes[%.80q]", name), errKeyed)
	}
	g.machines = append(g.machines, piece.Job(f).Retry(o.retry))
	machine := declare[[]T](g, name)
	define := machine.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[I, []T]) (fsm.Outcome, error) {
			all, err := list.read(&reader{input: v.State, visit: v})
			if err != nil {
				return nil, err
			}
			if len(all) == 0 {
				return v.Done([]T{}), nil
			}
			pieces := make([]fsm.Spec, len(all))
			for i, one := range all {
				pieces[i] = o.spec(g.labelled(piece.New(one).Queue(v.Queue), v.Labels))
				if pieces[i].Options().Key != "" {
					return nil, &fsm.OutcomeError{Field: fmt.Sprintf("pieces[%d].key", i), Err: errKeyed}
				}
			}
			return join(v.ScheduleChildren("join", v.State, pieces...), len(all)), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[I, []T]) (fsm.Outcome, error) {
			results, err := gather(piece.Children(v))
			if err != nil {
				return v.Fail(err), nil
			}
			return v.Done(results), nil
		}).To(),
	)
	return enter(g, name, &options{retry: o.retry, bad: o.bad}, machine, define, []Any{list})
}
