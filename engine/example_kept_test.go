package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A payment may come before its order: it waits for the order.
func ExampleEngine_Signal_kept() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	sent, err := shop.eng.Signal(ctx, orderKey(42), received.With(payment{Cents: 4200}).DedupKey("event-7").KeepFor(time.Hour))
	fmt.Println(sent.Kept, err)
	id, err := shop.eng.Insert(ctx, checkout.New(order{ID: 42}).Key(orderKey(42)))
	fmt.Println(err)
	got, err := checkout.Wait(ctx, shop.eng, id)
	fmt.Println(got.Paid, err)
	// Output:
	// true <nil>
	// <nil>
	// 4200 <nil>
}

// The orders of a payment run are told in one transaction. One of them does not exist.
func ExampleEngine_SignalMany() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	id, err := shop.eng.Insert(ctx, checkout.New(order{ID: 42}).Key(orderKey(42)))
	fmt.Println(err)
	done, err := shop.eng.SignalMany(ctx, []engine.Letter{
		{To: orderKey(41), Message: received.With(payment{Cents: 100})},
		{To: orderKey(42), Message: received.With(payment{Cents: 4200})},
	})
	fmt.Println(err, errors.Is(done[0].Err, engine.ErrNoTarget), done[1].To == id)
	got, err := checkout.Wait(ctx, shop.eng, id)
	fmt.Println(got.Paid, err)
	// Output:
	// <nil>
	// <nil> true true
	// 4200 <nil>
}

// A spec may say how long its instance is kept; a contradiction is refused.
func ExampleRetention() {
	spec := fsm.Declare[int, int]("ping", fsm.Retain(fsm.Retention{Done: fsm.RetainNone})).New(1)
	fmt.Println(spec.Options().Retain.Done == fsm.RetainNone)
	fmt.Println(spec.Retain(fsm.Retention{Failed: time.Hour}).Options().Retain)
	// Output:
	// true
	// {0s 1h0m0s 0s}
}
