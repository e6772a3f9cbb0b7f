package engine_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/engine"
)

func ExampleAdmin_Cancel() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := context.Background()

	changed, err := shop.eng.Admin().Cancel(ctx, orderKey(42), engine.Reason("the customer withdrew"))
	fmt.Println(changed.Was, "to", changed.Is, err)
	i, err := shop.eng.Get(ctx, id)
	fmt.Println(i.Failure, i.LastError, err)
	// Output:
	// awaiting_signal to failed <nil>
	// cancelled cancelled: the customer withdrew <nil>
}

// An operator's verb compares an earlier read with the current row.
func ExampleIfUnchanged() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := context.Background()
	seen, err := shop.eng.Get(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := shop.eng.Admin().Pause(ctx, id); err != nil { // somebody else
		fmt.Println(err)
	}
	_, err = shop.eng.Admin().Cancel(ctx, id, engine.IfUnchanged(seen))
	if conflict, ok := errors.AsType[*engine.ConflictError](err); ok {
		fmt.Println(conflict.Verb, conflict.Status)
	}
	// Output: cancel awaiting_signal
}

// Bulk looks first and changes nothing; Apply does it.
func ExampleAdmin_Bulk() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	shop.place(43)
	ctx := context.Background()

	plan, err := shop.eng.Admin().Bulk(ctx, engine.VerbCancel, engine.Filter{Labels: map[string]string{"customer": "ada"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("would cancel", plan.Matched)
	applied, err := plan.Apply(ctx, engine.Reason("closed account"))
	fmt.Println("cancelled", applied.Changed, err)
	// Output:
	// would cancel 2
	// cancelled 2 <nil>
}

// Each cause is data, and a sentence for the person on call.
func ExampleAdmin_Why() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	ctx := context.Background()
	if _, err := shop.eng.Admin().Pause(ctx, orderKey(42)); err != nil {
		fmt.Println(err)
		return
	}
	causes, err := shop.eng.Admin().Why(ctx, orderKey(42))
	for _, c := range causes {
		fmt.Println(c.Kind, c.Names)
	}
	fmt.Println(causes[1], err)
	// Output:
	// signals [payment_received]
	// paused []
	// an operator paused it <nil>
}

// No process claims from a paused queue until it is resumed.
func ExampleAdmin_PauseQueue() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	admin := shop.eng.Admin()
	fmt.Println(admin.PauseQueue(ctx, "default"))
	paused, err := admin.PausedQueues(ctx)
	fmt.Println(paused[0].Queue, err)
	fmt.Println(admin.ResumeQueue(ctx, "default"))
	// Output:
	// true <nil>
	// default <nil>
	// true <nil>
}

func ExampleAdmin_Workers() {
	shop := openShop()
	defer shop.close()
	shop.place(42) // it is at work
	workers, err := shop.eng.Admin().Workers(context.Background())
	for _, w := range workers {
		fmt.Println(w.Live, w.Queues, w.Machines)
	}
	fmt.Println(err)
	// Output:
	// true map[default:50] [checkout/1]
	// <nil>
}

// What Retry makes run is at the step that failed, with what that step saw.
func ExampleAdmin_Retry() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := context.Background()
	admin := shop.eng.Admin()
	if _, err := admin.Cancel(ctx, id); err != nil {
		fmt.Println(err)
		return
	}
	changed, err := admin.Retry(ctx, id)
	fmt.Println(changed.Was, "to", changed.Is, err)
	// Output: failed to runnable <nil>
}

// Restart runs again what has failed beneath an instance. Beneath this one nothing has, so it runs
// again itself.
func ExampleAdmin_Restart() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := context.Background()
	admin := shop.eng.Admin()
	if _, err := admin.Cancel(ctx, id); err != nil {
		fmt.Println(err)
		return
	}
	changed, err := admin.Restart(ctx, id)
	fmt.Println(changed.Was, "to", changed.Is, changed.Descendants, err)
	// Output: failed to runnable [] <nil>
}
