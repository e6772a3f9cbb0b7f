package fsm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// A step's own cost is to decode its state, make the visit and encode the outcome. This test shows
// when a change adds to it; most of it is encoding/json's, whose
// second version takes two more than the first.
func TestAStepAllocatesLittle(t *testing.T) {
	type state struct {
		N     int
		Order string
		Items []int
	}
	machine := fsm.Declare[state, state]("frugal")
	defined := machine.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[state, state]) (fsm.Outcome, error) {
			return v.Next("end", v.State), nil
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[state, state]) (fsm.Outcome, error) { return v.Done(v.State), nil }))
	erased := hidden.Machine(defined)
	claim := &step.Claim{ID: 1, Machine: "frugal", Version: 1, State: []byte(`{"N": 7, "Order": "ord_1", "Items": [1, 2, 3]}`)}
	for name, most := range map[string]float64{"start": 22, "end": 22} {
		claim.Step = name
		run := erased.Steps[name].Run
		allocations := testing.AllocsPerRun(200, func() {
			if _, err := run(t.Context(), claim); err != nil {
				t.Error(err)
			}
		})
		t.Logf("%s: %v", name, allocations)
		require.LessOrEqual(t, allocations, most, name)
	}
}
