package dag_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// edges says what the nodes of a graph wait for.
func edges(machines []fsm.Definition) string {
	out, err := durabletest.RunStep(context.Background(), machines[0], "start", durabletest.Visit{})
	var text strings.Builder
	for _, e := range out.Edges {
		fmt.Fprintln(&text, e.To, "waits for", e.From)
	}
	fmt.Fprint(&text, err)
	return text.String()
}

var (
	sum = func(_ context.Context, all []int) (int, error) {
		total := 0
		for _, n := range all {
			total += n
		}
		return total, nil
	}
	days = func(_ context.Context, month string) ([]string, error) {
		return []string{month + "-01", month + "-02"}, nil
	}
)

// Each runs a function for each element of a list that another node makes.
func ExampleEach() {
	g := dag.New(fsm.Declare[string, int]("monthly"))
	list := dag.Do(g, "days", dag.In(g), days)
	counts := dag.Each(g, "count", list, count, dag.Retry(fsm.RetryPolicy{MaxAttempts: 5}))
	fmt.Println(edges(g.Return(dag.Do(g, "sum", counts, sum))))
	// Output:
	// count waits for days
	// sum waits for count
	// <nil>
}

// Some goes on when enough pieces are done, and says what became of each.
func ExampleSome() {
	g := dag.New(fsm.Declare[string, int]("monthly"))
	list := dag.Do(g, "days", dag.In(g), days)
	pieces := dag.Some(g, "count", list, count, func(j *fsm.ChildrenOutcome, n int) *fsm.ChildrenOutcome { return j.Quorum(n / 2).CancelRest() })
	fmt.Println(edges(g.Return(dag.Do(g, "sum", pieces, func(ctx context.Context, all []dag.Piece[int]) (int, error) {
		return sum(ctx, dag.Results(all))
	}))))
	// Output:
	// count waits for days
	// sum waits for count
	// <nil>
}

// Failed and Maybe let a node wait for how another one ends.
func ExampleFailed() {
	g := dag.New(fsm.Declare[string, string]("trip"))
	flight := dag.Do(g, "flight", dag.In(g), count)
	hotel := dag.Do(g, "hotel", dag.After(dag.In(g), flight), count)
	refund := dag.Do2(g, "refund", flight, dag.Failed(hotel), func(_ context.Context, flight int, why error) (string, error) {
		return fmt.Sprint("flight ", flight, " given back: ", why), nil
	})
	fmt.Println(edges(g.Return(dag.Do(g, "report", dag.Maybe(refund), func(_ context.Context, o dag.Ended[string]) (string, error) {
		if _, skipped := errors.AsType[*fsm.FailedError](o.Err); skipped {
			return "booked", nil
		}
		return o.Value, nil
	}))))
	// Output:
	// hotel waits for flight
	// refund waits for flight
	// refund waits for hotel
	// report waits for refund
	// <nil>
}

// Quorum goes on with the first results of several nodes, All with all of them.
func ExampleQuorum() {
	g := dag.New(fsm.Declare[string, int]("ask"))
	a, b, c := dag.Do(g, "a", dag.In(g), count), dag.Do(g, "b", dag.In(g), count), dag.Do(g, "c", dag.In(g), count)
	first := dag.Do(g, "first", dag.Quorum(2, a, b, c), sum)
	fmt.Println(edges(g.Return(dag.Do(g, "sum", dag.All(first, a), sum))))
	// Output:
	// first waits for a
	// first waits for b
	// first waits for c
	// sum waits for first
	// sum waits for a
	// <nil>
}

// A decision point adds a node for each day that has to be counted again, and the report takes
// exactly these.
func ExampleDecide() {
	g := dag.New(fsm.Declare[string, int]("monthly"))
	recount := dag.Prepare(g, "recount", count)
	decision := dag.Decide(g, "check", dag.In(g), func(_ context.Context, month string, to *dag.Adder) (bool, error) {
		for _, day := range []string{month + "-07", month + "-21"} {
			recount.Add(to, day)
		}
		return true, nil
	})
	fmt.Println(edges(g.Return(dag.Do(g, "report", dag.Added(decision, recount), sum)))) // before check adds any
	// Output:
	// report waits for check
	// <nil>
}
