package shop

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/extensions/shop/ent"
)

type visit = fsm.Visit[int, int]

var (
	checkout = fsm.Declare[int, int]("checkout") // its state is the order's id
	paid     = fsm.DeclareSignal[int]("paid")
)

func orderKey(id int) fsm.Key { return fsm.Key(fmt.Sprintf("order:%d", id)) }

// Machine waits for a payment.
func Machine() fsm.Definition {
	return checkout.Define(
		fsm.Step("start", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
			err := v.Publish(ctx, map[string]int{"reminders": 0})
			return v.Await("settle", v.State, paid), err
		}).To("settle"),
		fsm.Step("settle", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			cents, _, err := paid.First(v)
			return v.Done(cents).Discard(), err
		}).To(),
	)
}

// Place saves an order and starts its checkout.
func Place(ctx context.Context, client *ent.Client, eng *engine.Engine, customer string, cents int) (*ent.Order, error) {
	return client.Order.Create().SetCustomer(customer).SetCents(cents).
		SaveWith(ctx, eng, func(o *ent.Order) fsm.Spec { return checkout.New(o.ID).Key(orderKey(o.ID)) })
}
