package fsm_test

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
)

// Version 2 of a machine has another state and another name for a step. It takes instances of
// version 1 that stand at these steps.
func ExampleMigrate() {
	type orderV1 struct{ Cents int64 }
	type order struct {
		Cents    int64
		Currency string
	}
	v1 := fsm.Declare[orderV1, string]("checkout", fsm.Version(1))
	v2 := fsm.Declare[order, string]("checkout", fsm.Version(2), fsm.Initial("settle"))
	settle := func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
		return v.Done(fmt.Sprint(v.State.Cents, " ", v.State.Currency)), nil
	}
	inEuros := func(o orderV1) (order, error) { return order{o.Cents, "EUR"}, nil }
	definition := v2.Define(fsm.Step("settle", settle).To()).
		From(fsm.Migrate(v1, v2, inEuros, fsm.StepNames{"start": "settle", "settle_payment": "settle"}))
	fmt.Println(fsm.Check(definition))

	wrong := v2.Define(fsm.Step("settle", settle).To()).From(fsm.Migrate(v1, v2, inEuros, fsm.StepNames{"start": "begin"}))
	fmt.Println(fsm.Check(wrong) != nil)
	// Output:
	// <nil>
	// true
}
