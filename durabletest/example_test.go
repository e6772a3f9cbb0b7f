package durabletest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// The test of a machine says what the machine awaits, and what it does after a day without that.
func Example() {
	_ = func(t *testing.T) {
		kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{shop{}.Definition(), parcels}})
		id, err := kit.Engine.Insert(t.Context(), checkout.New(order{ID: 42}))
		if err != nil {
			t.Fatal(err)
		}
		durabletest.RequireDrain(t, kit)
		durabletest.RequireParked(t, kit, id, "paid", "refused")
		durabletest.RequireAdvance(t, kit, 24*time.Hour)
		durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "not paid")
	}
}

func ExampleRunStep() {
	out, err := durabletest.RunStep(context.Background(), shop{}.Definition(), "settle",
		durabletest.Visit{State: order{ID: 42}, Awaited: []fsm.Message{paid.With(4200)}})
	fmt.Println(out.Kind, out.Step, string(out.State), err)
	// Output: next ship {"ID":42,"Cents":4200,"Sum":0} <nil>
}
