package engine_test

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/engine"
)

// Hooks see what the engine has done: here each step whose outcome is durable.
func ExampleHooks() {
	steps := make(chan string, 10)
	shop := openShop(func(c *engine.Config) {
		c.Hooks = []engine.Hooks{{
			Step: func(_ context.Context, e engine.StepEvent) { steps <- fmt.Sprint(e.Instance.Step, ": ", e.Outcome) },
		}}
	})
	defer shop.close()
	shop.place(42)
	fmt.Println(<-steps)
	_, err := shop.eng.Signal(context.Background(), orderKey(42), received.With(payment{Cents: 4200}))
	fmt.Println(<-steps, err)
	// Output:
	// start: await
	// ship: done <nil>
}
