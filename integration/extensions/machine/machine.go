// Package machine declares the machine that drives orders.
package machine

import (
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Cart is the state of a checkout.
type Cart struct {
	Cents int64
	Due   time.Time
	Kind  Kind
	In    struct{ Country string }
}

// Kind is a kind of cart.
type Kind string

// Checkout drives orders. Its result is the cents that were paid.
var Checkout = fsm.Declare[Cart, int64]("checkout")
