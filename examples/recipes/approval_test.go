package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// office is whom approvals ask, by the keys of its mails.
type office struct{ mails []string }

func (o *office) ask(_ context.Context, _, key string) error {
	o.mails = append(o.mails, key)
	return nil
}

func TestTheFirstDecisionCounts(t *testing.T) {
	t.Parallel()
	o := &office{}
	kit := kitWith(t, "", approval{ask: o.ask}.definition())
	id := insert(t, kit, Approval.New(Request{Document: "plan", Reminders: 5}))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireParked(t, kit, id, "decided")
	durabletest.RequireAdvance(t, kit, 49*time.Hour)
	require.Len(t, o.mails, 3, "the first one, and a reminder a day")
	require.NotEqual(t, o.mails[0], o.mails[1], "each is another mail")

	send := func(d Decision) error {
		_, err := kit.Engine.Signal(t.Context(), id, Decided.With(d))
		return err
	}
	require.NoError(t, send(Decision{By: "ann", Approved: true}))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, Decision{By: "ann", Approved: true}, durabletest.RequireDone(t, kit, Approval, id))
	require.ErrorIs(t, send(Decision{By: "bob"}), engine.ErrNoTarget)
}

func TestNobodyDecides(t *testing.T) {
	t.Parallel()
	o := &office{}
	kit := kitWith(t, "", approval{ask: o.ask}.definition())
	id := insert(t, kit, Approval.New(Request{Document: "plan", Reminders: 2}))
	durabletest.RequireAdvance(t, kit, 4*24*time.Hour)
	require.Equal(t, Decision{By: "nobody"}, durabletest.RequireDone(t, kit, Approval, id))
	require.Len(t, o.mails, 3)
}

func TestTheDeadlineIsTheNetBelow(t *testing.T) {
	t.Parallel()
	kit := kitWith(t, "", approval{ask: (&office{}).ask}.definition())
	id := insert(t, kit, Approval.New(Request{Document: "plan", Reminders: 100}))
	durabletest.RequireAdvance(t, kit, 29*24*time.Hour)
	durabletest.RequireParked(t, kit, id, "decided")
	durabletest.RequireAdvance(t, kit, 2*24*time.Hour)
	durabletest.RequireFailed(t, kit, id, fsm.FailureDeadline, "")
}
