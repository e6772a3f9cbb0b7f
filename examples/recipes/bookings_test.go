package recipes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

func TestAJourneyIsBookedAsAWholeOrUndone(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var refunded []string
	kit := kitWith(t, "", journey(func(_ context.Context, part string) (fsm.None, error) {
		if part == "hotel without rooms" {
			return fsm.None{}, fsm.Permanent(errors.New("no room"))
		}
		return fsm.None{}, nil
	}, func(_ context.Context, part string) (fsm.None, error) {
		mu.Lock()
		defer mu.Unlock()
		refunded = append(refunded, part)
		return fsm.None{}, nil
	})...)
	whole := insert(t, kit, Journeys.New(Journey{Parts: []string{"flight", "hotel"}}))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireDone(t, kit, Journeys, whole)
	require.Empty(t, refunded)

	parts := []string{"flight", "hotel without rooms", "car"}
	broken := insert(t, kit, Journeys.New(Journey{Parts: parts}))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireFailed(t, kit, broken, fsm.FailureDecided, "undone: hotel without rooms")
	slices.Sort(refunded)
	slices.Sort(parts)
	require.Equal(t, parts, refunded, "also what may have been booked before it was cancelled")
}
