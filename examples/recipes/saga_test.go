package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/tier"
)

// agency books and cancels, and notes the calls.
type agency struct {
	calls   []string
	keys    map[string]bool
	refuses map[string]error
}

func (a *agency) machine() booking {
	call := func(verb string) func(ctx context.Context, what, customer, key string) error {
		return func(_ context.Context, what, _, key string) error {
			a.calls = append(a.calls, verb+what)
			a.keys[key] = true
			return a.refuses[verb+what]
		}
	}
	return booking{book: call(""), cancel: call("cancel ")}
}

func TestATripIsBookedOrUndone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuses map[string]error
		calls   []string
		keys    int
	}{
		"all is well":  {nil, []string{"flight", "hotel"}, 2},
		"no hotel":     {map[string]error{"hotel": errors.New("full")}, []string{"flight", "hotel", "hotel", "hotel", "hotel", "hotel", "cancel hotel", "cancel flight"}, 4},
		"never again":  {map[string]error{"hotel": fsm.Permanent(errors.New("closed"))}, []string{"flight", "hotel", "hotel", "hotel", "hotel", "hotel", "cancel hotel", "cancel flight"}, 4},
		"not a flight": {map[string]error{"flight": errors.New("strike")}, []string{"flight", "flight", "flight", "flight", "flight", "cancel flight"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &agency{keys: map[string]bool{}, refuses: test.refuses}
			kit := kitWith(t, "", a.machine().definition())
			id := insert(t, kit, Booking.New(Trip{Customer: "ann"}))
			durabletest.RequireDrain(t, kit)
			durabletest.RequireAdvance(t, kit, time.Hour)
			if test.refuses == nil {
				durabletest.RequireDone(t, kit, Booking, id)
			} else {
				durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "undone: ")
			}
			require.Equal(t, test.calls, a.calls)
			require.Len(t, a.keys, test.keys, "one for each effect, the same for each attempt")
		})
	}
}

// A cancellation is tried until it succeeds.
func TestATripIsUndoneHoweverLongItTakes(t *testing.T) {
	t.Parallel()
	a := &agency{keys: map[string]bool{}, refuses: map[string]error{"hotel": errors.New("full"), "cancel flight": errors.New("closed on sundays")}}
	kit := kitWith(t, "", a.machine().definition())
	id := insert(t, kit, Booking.New(Trip{Customer: "ann"}))
	hours := tier.Pick(2, 12)
	durabletest.RequireAdvance(t, kit, time.Duration(hours)*time.Hour)
	durabletest.RequireStatus(t, kit, id, fsm.StatusRunnable)
	require.Greater(t, len(a.calls), 5*hours)
	delete(a.refuses, "cancel flight")
	durabletest.RequireAdvance(t, kit, time.Hour)
	durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "undone: full")
	require.Len(t, a.keys, 4)
}
