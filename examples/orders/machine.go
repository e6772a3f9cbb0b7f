package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Fate is how an order ended.
type Fate string

// The fates.
const (
	Shipped  Fate = "shipped"
	Refunded Fate = "refunded" // paid, but the item was sold out or the amount was wrong
	Expired  Fate = "expired"  // not paid in time
)

// Order is the state of a checkout: the ordered goods, and their fate so far.
type Order struct {
	ID       int64    `json:"order"`
	Email    string   `json:"email"`
	Item     string   `json:"item"`
	Quantity int      `json:"quantity"`
	Cents    int64    `json:"cents"`
	Payment  *Payment `json:"payment,omitempty"`
	Fate     Fate     `json:"fate,omitempty"`
}

// Payment is what the payment provider reports. Event is the provider's own identity for it.
type Payment struct {
	Event string `json:"event"`
	Cents int64  `json:"cents"`
}

// Receipt is the result of a checkout. Event is the payment that settled it; empty if none did.
type Receipt struct {
	Order int64  `json:"order"`
	Fate  Fate   `json:"fate"`
	Cents int64  `json:"cents"`
	Event string `json:"event,omitempty"`
}

// The shop, the HTTP server and the workers share these declarations.
var (
	Checkout = fsm.Declare[Order, Receipt]("checkout", fsm.Queue("checkout"))
	Paid     = fsm.DeclareSignal[Payment]("paid")
)

// Key is the address of an order, for code that knows its number only.
func Key(order int64) fsm.Key { return fsm.Key(fmt.Sprintf("order:%d", order)) }

// checkout is what an order goes through:
//
//	start ─▶ (waits for the payment) ─▶ paid ─▶ ship ─▶ mail ─▶ done
//	                                     │       └─▶ refund ─▶┤
//	                                     └──────── unpaid ────┘
type checkout struct {
	outside   *outside
	payWithin time.Duration
}

type visit = fsm.Visit[Order, Receipt]

func (m checkout) Definition() fsm.Definition {
	return Checkout.Define(
		fsm.Step("start", m.start).To("paid"),
		fsm.Step("paid", m.paid).To("ship", "refund", "mail"),
		fsm.Step("ship", m.ship).To("mail", "refund").Timeout(30*time.Second),
		fsm.Step("refund", m.refund).To("mail").Timeout(30*time.Second),
		fsm.Step("mail", m.mail).To("late").Timeout(30*time.Second),
		fsm.Step("late", m.late).To().Timeout(30*time.Second),
	).OnError(m.failed).Unless("late", Paid)
}

// start parks the order. Nothing of it stays in memory. A payment that has come before is in the
// inbox, and wakes the order at once.
func (m checkout) start(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("paid", v.State, Paid).Timeout(m.payWithin), nil
}

// paid looks for the payment first, and not at v.TimedOut: a payment may have arrived between the
// timeout and this step.
func (m checkout) paid(_ context.Context, v *visit) (fsm.Outcome, error) {
	payment, ok, err := Paid.First(v)
	if err != nil {
		return nil, err
	}
	if !ok {
		v.State.Fate = Expired
		return v.Next("mail", v.State), nil
	}
	// The outcome consumes the signal, so the state keeps what it said.
	v.State.Payment = &payment
	if payment.Cents != v.State.Cents {
		return v.Next("refund", v.State), nil
	}
	return v.Next("ship", v.State), nil
}

// ship may run more than once for one order: the warehouse answers with an error, its answer is
// lost, this process dies. The idempotency key is the same each time, so the warehouse ships once.
func (m checkout) ship(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := m.outside.ship(ctx, v.State, v.IdempotencyKey("shipment"), v.FencingToken); err != nil {
		return nil, err
	}
	v.State.Fate = Shipped
	return v.Next("mail", v.State), nil
}

func (m checkout) refund(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := m.outside.refund(ctx, v.State, v.IdempotencyKey("refund"), v.FencingToken); err != nil {
		return nil, err
	}
	v.State.Fate = Refunded
	return v.Next("mail", v.State), nil
}

func (m checkout) mail(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := m.outside.mail(ctx, v.State, v.IdempotencyKey("mail"), v.FencingToken); err != nil {
		return nil, err
	}
	return v.Done(v.State.receipt()), nil
}

// late runs in place of an end that would delete late payments: another one, or the first one in
// the moment in which the order expires. It gives them back.
func (m checkout) late(ctx context.Context, v *visit) (fsm.Outcome, error) {
	payments, err := Paid.All(v)
	if err != nil {
		return nil, err
	}
	for _, p := range payments {
		order := v.State
		order.Payment = &p
		if err := m.outside.refund(ctx, order, v.IdempotencyKey("refund "+p.Event), v.FencingToken); err != nil {
			return nil, err
		}
	}
	return v.Done(v.State.receipt()), nil
}

func (o Order) receipt() Receipt {
	r := Receipt{Order: o.ID, Fate: o.Fate, Cents: o.Cents}
	if o.Payment != nil {
		r.Event, r.Cents = o.Payment.Event, o.Payment.Cents
	}
	return r
}

// failed decides what becomes of a step that returned an error. It looks for errors that the
// business knows first; the policy comes last.
func (m checkout) failed(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	if errors.Is(err, errSoldOut) {
		return v.Next("refund", v.State), nil
	}
	return v.RetryBy(fsm.RetryPolicy{MaxAttempts: 10, Base: 100 * time.Millisecond, Max: 5 * time.Second}, err), nil
}
