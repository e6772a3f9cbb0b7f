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
	hour := func() time.Time { return time.Now().UTC().Truncate(time.Hour) }
	for began, customer := hour(), "ann"; ; began, customer = hour(), customer+"'" {
		answers := []bool{request(customer), request(customer), request("bob, whom " + customer + " does not concern")}
		durabletest.RequireDrain(t, kit)
		answers = append(answers, request(customer)) // it has ended, and the key is kept
		durabletest.RequireDrain(t, kit)
		if hour() != began {
			continue // the clock struck in between: that is two windows
		}
		require.Equal(t, []bool{true, false, true, false}, answers)
		require.Equal(t, 1, sent[customer])
		return
	}
}
