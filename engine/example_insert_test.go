package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// An occupied key is a DuplicateError that names its occupant.
func ExampleEngine_Insert() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	spec := checkout.New(order{ID: 42}).Key(orderKey(42)).Priority(-5).After(time.Minute)
	id, err := shop.eng.Insert(ctx, spec)
	fmt.Println(err)
	_, err = shop.eng.Insert(ctx, spec)
	if duplicate, ok := errors.AsType[*engine.DuplicateError](err); ok {
		fmt.Println(duplicate.Key, "is the first one's:", duplicate.Occupant == id)
	}
	// Output:
	// <nil>
	// order:42 is the first one's: true
}

// All in one transaction; a spec that is wrong refuses the whole call.
func ExampleEngine_InsertMany() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	results, err := shop.eng.InsertMany(ctx, []fsm.Spec{
		checkout.New(order{ID: 1}).Key(orderKey(1)),
		checkout.New(order{ID: 2}).Key(orderKey(2)),
		checkout.New(order{ID: 1}).Key(orderKey(1)),
	})
	for _, r := range results {
		fmt.Println(r.ID == results[0].ID, r.Duplicate)
	}
	fmt.Println(err)

	_, err = shop.eng.InsertMany(ctx, []fsm.Spec{checkout.New(order{ID: 3}), checkout.New(order{ID: 4}).Priority(1 << 20)})
	if wrong, ok := errors.AsType[*engine.InsertError](err); ok {
		fmt.Println("nothing inserted:", wrong.Index, wrong.Field)
	}
	// Output:
	// true false
	// false false
	// true true
	// <nil>
	// nothing inserted: 1 priority
}

// Of the inserts in a window the first wins; of those that debounce, the last.
func ExampleThrottledError() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	spec := checkout.New(order{ID: 42}).Throttle("checkout:42", time.Hour)
	id, err := shop.eng.Insert(ctx, spec)
	fmt.Println(err)
	_, err = shop.eng.Insert(ctx, spec)
	if taken, ok := errors.AsType[*engine.ThrottledError](err); ok {
		fmt.Println(taken.Key, "is the first one's:", taken.First == id, errors.Is(err, engine.ErrThrottled))
	}
	// Output:
	// <nil>
	// checkout:42 is the first one's: true true
}

// Each spec finds what those before it have done, also in one call.
func ExampleInserted() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	spec := checkout.New(order{ID: 42}).Key(orderKey(42)).After(time.Hour)
	done, err := shop.eng.InsertMany(ctx, []fsm.Spec{spec, spec.OnConflict(fsm.ConflictReplace), spec, spec.OnConflict(fsm.ConflictNewest)})
	for _, one := range done {
		fmt.Println(one.ID == done[0].ID, one.Duplicate, one.Replaced)
	}
	fmt.Println(err)
	// Output:
	// true false false
	// true false true
	// true true false
	// false false false
	// <nil>
}

func ExampleEngine_GetOrInsert() {
	shop := openShop()
	defer shop.close()
	spec := checkout.New(order{ID: 42}).KeyFromState() // equal states have equal keys
	for range 2 {
		got, err := shop.eng.GetOrInsert(context.Background(), spec)
		fmt.Println(got.Duplicate, err)
	}
	// Output:
	// false <nil>
	// true <nil>
}

// A webhook: a redelivered event is no error.
func ExampleEngine_Signal() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	webhook := func(to fsm.Key, event string) string {
		d, err := shop.eng.Signal(ctx, to, received.With(payment{Cents: 4200}).DedupKey(event))
		switch {
		case errors.Is(err, engine.ErrNoTarget):
			return "no such order, or it has ended"
		case err != nil:
			return "let the sender try again: " + err.Error()
		case d.Duplicate:
			return "known already"
		}
		return "delivered"
	}
	fmt.Println(webhook(orderKey(42), "evt-7"))
	fmt.Println(webhook(orderKey(43), "evt-8"))
	// Output:
	// delivered
	// no such order, or it has ended
}

// The first signal or insert starts the order: the signal is in its inbox either way.
func ExampleEngine_SignalOrInsert() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	in, err := shop.eng.SignalOrInsert(ctx, checkout.New(order{ID: 42}).Key(orderKey(42)),
		received.With(payment{Cents: 4200}).DedupKey("evt-7"))
	fmt.Println("known before:", in.Duplicate, err)
	paid, err := checkout.Wait(ctx, shop.eng, in.ID)
	fmt.Println(paid.Paid, err)
	// Output:
	// known before: false <nil>
	// 4200 <nil>
}
