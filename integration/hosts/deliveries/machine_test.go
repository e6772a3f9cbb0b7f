package deliveries

import (
	"context"
	"testing"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// stub is the work of a test. It goes on at the status that the test wants.
type stub struct{ to Status }

func (s stub) AtPacked(context.Context, int64, string) (Status, error) { return s.to, nil }

// tested is the machine without rows.
func tested(to Status) fsm.Definition {
	return machine{work: stub{to}, move: func(v *visit, to Status) fsm.Outcome { return v.Next(string(to), v.State) }}.definition()
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	if err := fsm.Check(tested("")); err != nil {
		t.Error(err)
	}
}

// An instance may begin at each status, and each transition leads on from there.
func TestTransitions(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		from, to Status
		signal   fsm.Message // of a status that waits
	}{
		{from: "pending", to: "packed", signal: PendingToPacked.With(fsm.None{})},
		{from: "pending", to: "cancelled", signal: PendingToCancelled.With(fsm.None{})},
		{from: "packed", to: "out-for-delivery"},
		{from: "out-for-delivery", to: "delivered", signal: OutForDeliveryToDelivered.With(fsm.None{})},
		{from: "out-for-delivery", to: "packed", signal: OutForDeliveryToPacked.With(fsm.None{})},
	} {
		t.Run(string(one.from+" to "+one.to), func(t *testing.T) {
			t.Parallel()
			kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{tested(one.to)}})
			id, err := kit.Engine.Insert(t.Context(), Machine.New(State{}).Step(string(one.from)))
			if err != nil {
				t.Fatal(err)
			}
			if one.signal.Name() != "" {
				durabletest.RequireDrain(t, kit)
				durabletest.RequireParked(t, kit, id)
				if _, err := kit.Engine.Signal(t.Context(), id, one.signal); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := kit.Step(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			at, err := kit.Engine.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if at.Step != string(one.to) {
				t.Errorf("it is at %s: %s", at.Step, at.LastError)
			}
		})
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{tested("")}})
	for _, at := range []string{"delivered", "cancelled"} {
		id, err := kit.Engine.Insert(t.Context(), Machine.New(State{}).Step(at))
		if err != nil {
			t.Fatal(err)
		}
		durabletest.RequireDrain(t, kit)
		durabletest.RequireDone(t, kit, Machine, id)
	}
}
