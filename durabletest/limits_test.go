package durabletest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// Advance lets as many begin as a rate does in that time, though the steps themselves take none.
func TestAdvanceHeedsRates(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	_, err := kit.Engine.Admin().SetGate(t.Context(), engine.Gate{Name: "shops", Label: "shop", Rate: engine.Rate{N: 6, Per: time.Hour, Burst: 2}})
	require.NoError(t, err)
	for range 19 {
		insert(t, kit, checkout.New(order{}).Label("shop", "north"))
	}
	last := insert(t, kit, checkout.New(order{}).Label("shop", "north"))
	free := insert(t, kit, checkout.New(order{}).Label("shop", "south"))
	require.Equal(t, 3, durabletest.RequireDrain(t, kit).Steps, "the burst of each")
	durabletest.RequireParked(t, kit, free)
	causes, err := kit.Engine.Admin().Why(t.Context(), last)
	require.NoError(t, err)
	require.Contains(t, kinds(causes), engine.CauseGateRate)
	require.Equal(t, 6, durabletest.RequireAdvance(t, kit, time.Hour+time.Minute).Steps)
	require.Equal(t, 12, durabletest.RequireAdvance(t, kit, 10*time.Hour).Steps, "all that are left")
}

// A step that is turned away closes its gate for the others of its key, as long as it says, and
// burns no attempt.
func TestAThrottledStepClosesItsGate(t *testing.T) {
	t.Parallel()
	call := fsm.Declare[string, fsm.None]("call")
	refusals, runs, first := 1, 0, fsm.ID(0)
	kit := durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t), Machines: []fsm.Definition{call.Job(func(ctx context.Context, tenant string) (fsm.None, error) {
		info, _ := fsm.InfoFrom(ctx)
		require.Zero(t, info.Attempt)
		if runs++; refusals > 0 && tenant == "acme" {
			refusals--
			first = info.ID
			return fsm.None{}, fsm.Throttled(errors.New("too many requests"), 10*time.Minute)
		}
		return fsm.None{}, nil
	})}})
	admin := kit.Engine.Admin()
	_, err := admin.SetGate(t.Context(), engine.Gate{Name: "api", Machine: "call", Label: "tenant", Places: 1})
	require.NoError(t, err)
	var acme []fsm.ID
	for range 3 {
		acme = append(acme, insert(t, kit, call.New("acme").Label("tenant", "acme")))
	}
	insert(t, kit, call.New("zoo").Label("tenant", "zoo"))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, 2, runs, "one was turned away, and zoo does not care")
	keys, err := admin.GateKeys(t.Context(), "api")
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, "api/acme", keys[0].Key)
	require.Contains(t, acme, first)
	second := slices.DeleteFunc(acme, func(id fsm.ID) bool { return id == first })[0]
	causes, err := admin.Why(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, []engine.CauseKind{engine.CauseNoWorker, engine.CauseGateClosed}, kinds(causes), "a kit is no worker")
	require.Equal(t, []string{"api/acme"}, causes[1].Names)
	require.Equal(t, keys[0].ClosedUntil, causes[1].Until)
	durabletest.RequireAdvance(t, kit, 9*time.Minute)
	require.Equal(t, 2, runs)
	durabletest.RequireAdvance(t, kit, 2*time.Minute)
	require.Equal(t, 5, runs)
}

// A step that is turned away once more, after its gate has opened again, closes it again.
func TestAThrottledStepClosesItsGateAgain(t *testing.T) {
	t.Parallel()
	call := fsm.Declare[string, fsm.None]("call")
	runs := 0
	kit := durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t), Machines: []fsm.Definition{call.Job(func(context.Context, string) (fsm.None, error) {
		runs++
		return fsm.None{}, fsm.Throttled(errors.New("too many requests"), 10*time.Minute)
	})}})
	admin := kit.Engine.Admin()
	_, err := admin.SetGate(t.Context(), engine.Gate{Name: "api", Machine: "call", Places: 5})
	require.NoError(t, err)
	closed := func() bool {
		keys, err := admin.GateKeys(t.Context(), "api")
		require.NoError(t, err)
		return len(keys) == 1 && !keys[0].ClosedUntil.IsZero()
	}
	insert(t, kit, call.New("a"))
	durabletest.RequireDrain(t, kit)
	require.True(t, closed())
	durabletest.RequireAdvance(t, kit, 10*time.Minute+5*time.Second)
	require.Equal(t, 2, runs)
	require.True(t, closed())
	changed, err := admin.OpenGate(t.Context(), "api")
	require.NoError(t, err)
	require.True(t, changed)
	insert(t, kit, call.New("b"))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, 3, runs)
	require.True(t, closed())
}

func kinds(causes []engine.Cause) (kinds []engine.CauseKind) {
	for _, c := range causes {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}
