package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

func TestAPanelDecidesWithEnoughOfItsMembers(t *testing.T) {
	t.Parallel()
	kit := kitWith(t, "", panel{ask: func(context.Context, string, string, string) error { return nil }}.definitions()...)
	for _, c := range []struct {
		document string
		votes    map[string]bool
		wait     time.Duration
		want     Verdict
	}{
		{"two agree, and nobody waits for the third", map[string]bool{"ann": true, "eve": true}, time.Minute, Verdict{Agreed: []string{"ann", "eve"}, Passed: true}},
		{"two refuse, and nobody waits for the third", map[string]bool{"ann": false, "bob": false}, time.Minute, Verdict{}},
		{"one agrees, and the others never answer", map[string]bool{"bob": true}, 8 * 24 * time.Hour, Verdict{Agreed: []string{"bob"}}},
	} {
		id := insert(t, kit, Proposals.New(Proposal{Document: c.document, Panel: []string{"ann", "bob", "eve"}, Needed: 2}))
		durabletest.RequireDrain(t, kit)
		for person, agrees := range c.votes {
			_, err := kit.Engine.Signal(t.Context(), ballotKey(c.document, person), Vote.With(agrees))
			require.NoError(t, err, c.document)
		}
		durabletest.RequireDrain(t, kit)
		if len(c.votes) == 1 {
			durabletest.RequireStatus(t, kit, id, fsm.StatusAwaitingChildren)
		}
		durabletest.RequireAdvance(t, kit, c.wait)
		require.Equal(t, c.want, durabletest.RequireDone(t, kit, Proposals, id), c.document)
	}
	require.Zero(t, count(t, kit, `SELECT count(*) FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed')`), "who was not waited for is cancelled")
}
