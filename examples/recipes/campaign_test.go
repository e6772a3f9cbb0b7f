package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

func TestACampaignTriesAgainWhomItDidNotReach(t *testing.T) {
	t.Parallel()
	tries := map[string]int{}
	kit := kitWith(t, "", campaign(func(_ context.Context, to string) (fsm.None, error) {
		tries[to]++
		if to == "nowhere" || to == "away" && tries[to] == 1 {
			return fsm.None{}, fsm.Permanent(errors.New("no such box"))
		}
		return fsm.None{}, nil
	})...)
	id := insert(t, kit, Sending.New(Campaign{Left: []string{"ann", "away", "bob", "nowhere"}, Rounds: 2}))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, map[string]int{"ann": 1, "away": 1, "bob": 1, "nowhere": 1}, tries, "the failed ones held up nobody")
	durabletest.RequireAdvance(t, kit, time.Hour)
	require.Equal(t, Reached{Sent: 3, Failed: []string{"nowhere"}}, durabletest.RequireDone(t, kit, Sending, id))
	require.Equal(t, map[string]int{"ann": 1, "away": 2, "bob": 1, "nowhere": 3}, tries)
}

// A message that hangs in its retries holds up the rest for as long as its deadline says.
func TestACampaignGoesOnWithoutAMessageThatIsLate(t *testing.T) {
	t.Parallel()
	kit := kitWith(t, "", campaign(func(_ context.Context, to string) (fsm.None, error) {
		if to == "busy" {
			return fsm.None{}, fsm.RetryAfter(20*time.Minute, errors.New("busy"))
		}
		return fsm.None{}, nil
	})...)
	id := insert(t, kit, Sending.New(Campaign{Left: []string{"busy", "ann"}}))
	durabletest.RequireAdvance(t, kit, 30*time.Minute)
	durabletest.RequireStatus(t, kit, id, fsm.StatusAwaitingChildren)
	durabletest.RequireAdvance(t, kit, time.Hour)
	require.Equal(t, Reached{Sent: 1, Failed: []string{"busy"}}, durabletest.RequireDone(t, kit, Sending, id))
}
