package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

func TestACustomerGetsOneDigestAnHour(t *testing.T) {
	t.Parallel()
	sent := map[string]int{}
	kit := kitWith(t, "", Digest.Job(func(_ context.Context, a DigestArgs) (fsm.None, error) {
		sent[a.Customer]++
		return fsm.None{}, nil
	}))
	request := func(customer string) bool {
		t.Helper()
		first, err := requestDigest(t.Context(), kit.Engine, customer)
		require.NoError(t, err)
		return first
	}
	answers := []bool{request("ann"), request("ann"), request("bob")}
	durabletest.RequireDrain(t, kit)
	answers = append(answers, request("ann")) // its instance has ended, and the window is open
	durabletest.RequireDrain(t, kit)
	if len(answers) == 4 && answers[1] == answers[3] { // else the clock struck in between: that is two windows
		require.Equal(t, []bool{true, false, true, false}, answers)
		require.Equal(t, map[string]int{"ann": 1, "bob": 1}, sent)
	}
	durabletest.RequireAdvance(t, kit, time.Hour)
	require.True(t, request("ann"), "the next hour")
}
