package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

// By id, or by the key that it occupies. The machine's own Get decodes state and result.
func ExampleEngine_Get() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	raw, err := shop.eng.Get(context.Background(), orderKey(42))
	fmt.Println(raw.Step, raw.Status, string(raw.State), err)
	typed, err := checkout.Get(context.Background(), shop.eng, orderKey(42))
	fmt.Println(typed.State.Cents, err)
	// Output:
	// ship awaiting_signal {"ID": 42, "Cents": 4200} <nil>
	// 4200 <nil>
}

// A row of the ent client, with its state in the machine's type.
func ExampleRaw() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	row, err := shop.eng.Ent().Instance.Query().Where(instance.Machine("checkout")).Only(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := checkout.StateOf(shop.eng, engine.Raw(row))
	fmt.Println(row.Step, state.Cents, err)
	// Output: ship 4200 <nil>
}

func ExampleEngine_Wait() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := context.Background()
	if _, err := shop.eng.Signal(ctx, id, received.With(payment{Cents: 4200})); err != nil {
		fmt.Println(err)
		return
	}
	ended, err := shop.eng.Wait(ctx, id)
	fmt.Println(ended.Status, string(ended.Result), err)
	// Output: done {"Paid": 4200, "Order": 42} <nil>
}

// An operator's list: the newest that wait, of one customer.
func ExampleEngine_List() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	shop.place(43)
	page, err := shop.eng.List(context.Background(), engine.Query{
		Filter: engine.Filter{Status: []fsm.Status{fsm.StatusAwaitingSignal}, Labels: map[string]string{"customer": "ada"}},
		Limit:  1,
	})
	for _, i := range page.Instances {
		fmt.Println(i.Key, i.Machine, i.Step)
	}
	fmt.Println("more:", page.Next != "", err) // Next goes to Query.After
	// Output:
	// order:43 checkout ship
	// more: true <nil>
}

// The typed form decodes states and results.
func ExampleEngine_All() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	shop.place(43)
	q := engine.Query{Filter: engine.Filter{Step: "ship"}, OldestFirst: true}
	for i, err := range checkout.All(context.Background(), shop.eng, q) {
		fmt.Println(i.State.ID, i.State.Cents, err)
	}
	// Output:
	// 42 4200 <nil>
	// 43 4200 <nil>
}

func ExampleEngine_Counts() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	shop.place(43)
	counts, err := shop.eng.Counts(context.Background(), engine.CountsOptions{})
	for _, c := range counts.Counts {
		fmt.Println(c.Machine, c.Step, c.Status, c.Count)
	}
	fmt.Println(counts.Complete, err)
	// Output:
	// checkout ship awaiting_signal 2
	// true <nil>
}

func ExampleEngine_Lag() {
	shop := openShop()
	defer shop.close()
	lag, err := shop.eng.Lag(context.Background())
	fmt.Println(lag, err)
	// Output: map[default:0s] <nil>
}

// Queries go through the generated client; the machine's type decodes what they find.
func ExampleEngine_Ent() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	ctx := context.Background()
	rows, err := shop.eng.Ent().Instance.Query().
		Where(instance.Machine(checkout.Name()), instance.StatusEQ(fsm.StatusAwaitingSignal)).Limit(10).All(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range rows {
		state, err := checkout.DecodeState(shop.eng.Codec(), row.State)
		fmt.Println(row.Awaits, state.Cents, err)
	}
	// Output: [payment_received] 4200 <nil>
}

// What went wrong before it failed, or on the way.
func ExampleEngine_Errors() {
	failing := fsm.Declare[order, receipt]("failing")
	shop := openShop(func(c *engine.Config) {
		c.Machines = append(c.Machines, failing.Job(func(context.Context, order) (receipt, error) {
			return receipt{}, fsm.Permanent(fmt.Errorf("no such order"))
		}))
	})
	defer shop.close()
	ctx := context.Background()
	id, err := shop.eng.Insert(ctx, failing.New(order{ID: 42}))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := shop.eng.Wait(ctx, id); err != nil {
		fmt.Println(err)
	}
	list, err := shop.eng.Errors(ctx, id)
	for _, e := range list {
		fmt.Println(e.Kind, e.Step, e.Attempt, e.Message)
	}
	fmt.Println(err)
	// Output:
	// fail start 0 no such order
	// <nil>
}

// The most frequent failures, and how often they happen. Errors that differ in their numbers only
// are one group.
func ExampleEngine_Failures() {
	failing := fsm.Declare[order, receipt]("failing")
	shop := openShop(func(c *engine.Config) {
		c.Machines = append(c.Machines, failing.Job(func(_ context.Context, o order) (receipt, error) {
			return receipt{}, fsm.Permanent(fmt.Errorf("no order %d", o.ID))
		}))
	})
	defer shop.close()
	ctx := context.Background()
	for _, n := range []int64{41, 42} {
		id, err := shop.eng.Insert(ctx, failing.New(order{ID: n}))
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := shop.eng.Wait(ctx, id); err != nil {
			fmt.Println(err)
		}
	}
	found, err := shop.eng.Failures(ctx, engine.FailuresOptions{Machine: "failing"})
	for _, g := range found.Groups {
		fmt.Println(g.Count, g.Machine, g.Step, g.Failure, g.Error)
	}
	fmt.Println(found.More, err)
	// Output:
	// 2 failing start error no order 42
	// false <nil>
}

func ExampleEngine_ChildCounts() {
	shop := openShop()
	defer shop.close()
	children, err := shop.eng.ChildCounts(context.Background(), shop.place(42))
	fmt.Println(len(children.Counts), children.AtLeast, err)
	// Output: 0 false <nil>
}

// A graph is drawn as it is; this instance has made none.
func ExampleEngine_Graph() {
	shop := openShop()
	defer shop.close()
	graph, err := shop.eng.Graph(context.Background(), shop.place(42))
	fmt.Print(len(graph.Nodes), " ", err, "\n", graph.DOT())
	// Output:
	// 0 <nil>
	// digraph {
	//   graph [label="checkout/1"]
	//   node [shape=box]
	// }
}

// Waiting and executing instances of each queue, and the workers.
func ExampleAdmin_Load() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	later := checkout.New(order{ID: 42, Cents: 4200}).Queue("emails").After(time.Hour)
	if _, err := shop.eng.Insert(ctx, later); err != nil {
		fmt.Println(err)
		return
	}
	load, err := shop.eng.Admin().Load(ctx)
	for _, q := range load.Queues {
		if q.Queue == "emails" {
			fmt.Println(q.Due, q.Delayed, q.Executing, q.Workers, q.PausedSince.IsZero())
		}
	}
	fmt.Println(err)
	// Output:
	// 0 1 0 0 true
	// <nil>
}
