package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// At most three checkouts of each customer execute at a time, in all processes together, and ten of
// all customers.
func ExampleAdmin_SetGate() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	admin := shop.eng.Admin()
	fmt.Println(admin.SetGate(ctx, engine.Gate{Name: "customers", Machine: "checkout", Label: "customer", Places: 3, Total: 10}))
	gates, err := admin.Gates(ctx)
	for _, g := range gates {
		fmt.Println(g.Name, g.Places, "taken", g.Taken, err)
	}
	fmt.Println(admin.DropGate(ctx, "customers"))
	// Output:
	// true <nil>
	// customers 3 taken 0 <nil>
	// true <nil>
}

// A gate without bounds is there to be closed, e.g. while a provider is down.
func ExampleAdmin_CloseGate() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	admin := shop.eng.Admin()
	_, err := admin.SetGate(ctx, engine.Gate{Name: "bank", Queue: "default", Rate: engine.Rate{N: 50}})
	fmt.Println(err)
	fmt.Println(admin.CloseGate(ctx, "bank", time.Time{}))
	fmt.Println(admin.OpenGate(ctx, "bank"))
	// Output:
	// <nil>
	// true <nil>
	// true <nil>
}
