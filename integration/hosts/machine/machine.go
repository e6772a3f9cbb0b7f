// Package machine declares the machine of a host. It imports nothing of the client: the schema
// imports it, and the client that is generated from the schema does.
package machine

import "github.com/gendurable/gendurable/fsm"

// Cart is the state of a checkout.
type Cart struct {
	Order int64
	Cents int64
}

// Checkout drives orders. Its result is the cents that were paid. Paid tells it of the payment.
var (
	Checkout = fsm.Declare[Cart, int64]("checkout")
	Paid     = fsm.DeclareSignal[int64]("paid")
)
