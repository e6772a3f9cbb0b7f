package dag_test

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

var Nightly = fsm.Declare[string, string]("nightly")

func count(_ context.Context, day string) (int, error) { return len(day), nil }

func compare(_ context.Context, orders, users int) (string, error) {
	return fmt.Sprintf("%d orders of %d users", orders, users), nil
}

// The edges of a graph are the arguments of its nodes.
func Example() {
	g := dag.New(Nightly)
	orders := dag.Do(g, "orders", dag.In(g), count)
	users := dag.Do(g, "users", dag.In(g), count, dag.With(func(s fsm.Spec) fsm.Spec { return s.Queue("io") }))
	report := dag.Do2(g, "report", orders, users, compare)
	machines := g.Return(report) // for engine.Config.Machines

	out, err := durabletest.RunStep(context.Background(), machines[0], "start", durabletest.Visit{State: "2026-11-22"})
	for _, node := range out.Children {
		fmt.Println(node.Node, node.Options.Machine, node.Options.Queue)
	}
	fmt.Println(out.Edges, err)
	// Output:
	// orders nightly.orders default
	// users nightly.users io
	// report nightly.report default
	// [{orders report done false} {users report done false}] <nil>
}
