package worker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/worker"
)

// Hooks that count steps by machine and outcome. A test of hooks calls them like an engine does.
func ExampleHooks() {
	steps := map[string]int{}
	hooks := worker.Hooks{
		Step: func(_ context.Context, e worker.StepEvent) { steps[e.Instance.Machine+": "+string(e.Outcome)]++ },
	}

	ctx, order := context.Background(), fsm.Info{Machine: "order", Step: "charge"}
	hooks.Step(ctx, worker.StepEvent{Instance: order, Outcome: fsm.OutcomeNext, Took: 20 * time.Millisecond})
	hooks.Step(ctx, worker.StepEvent{Instance: order, Outcome: fsm.OutcomeDone, Took: 30 * time.Millisecond})
	hooks.Step(ctx, worker.StepEvent{Instance: order, Outcome: fsm.OutcomeNext, Took: 10 * time.Millisecond})
	fmt.Println(steps)
	// Output: map[order: done:1 order: next:2]
}

// A line for an operator about what a process is doing: engine.Engine.Activity returns it.
func ExampleActivity() {
	describe := func(a worker.Activity) {
		for _, q := range a.Queues {
			fmt.Printf("%s: %d of %d slots in use, %d claims wait\n", q.Name, q.Running, q.Slots, q.Buffered)
		}
		for _, f := range a.Failing {
			fmt.Printf("%s fails: %s\n", f.Doing, f.Obstacle)
		}
	}

	describe(worker.Activity{
		InFlight: 14,
		Queues:   []worker.QueueActivity{{Name: "payments", Running: 10, Slots: 10, Buffered: 4}},
		Failing:  []worker.Failing{{Doing: worker.DoingCommit, Obstacle: worker.ObstacleReadOnly}},
	})
	// Output:
	// payments: 10 of 10 slots in use, 4 claims wait
	// commit fails: read_only
}
