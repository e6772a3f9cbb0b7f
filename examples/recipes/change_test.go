package recipes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestWhatReleaseOneHasBegunGoesOn(t *testing.T) {
	t.Parallel()
	kit := kitWith(t, "", deliver())
	begun := insert(t, kit, DeliverV1.New(ParcelV1{"book", 1200}))
	settles := insert(t, kit, DeliverV1.New(ParcelV1{"lamp", 3000}).Step("settle_payment"))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, "book for 1200 EUR", durabletest.RequireDone(t, kit, Deliver, begun))
	require.Equal(t, "lamp for 3000 EUR", durabletest.RequireDone(t, kit, Deliver, settles))
}

func TestWhatWaitsIsMovedAtOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	kit := kitWith(t, "", deliver())
	waits := insert(t, kit, DeliverV1.New(ParcelV1{"book", 1200}).Step("settle_payment").After(24*time.Hour))
	odd := insert(t, kit, DeliverV1.New(ParcelV1{"lamp", -1}).After(24*time.Hour))
	_, err := migrateParcels(t.Context(), kit.Engine)
	require.ErrorContains(t, err, "lamp for -1 cents")
	mend := DeliverV1.Change(func(p *ParcelV1) error { p.Cents = 0; return nil })
	_, err = kit.Engine.Admin().Edit(t.Context(), odd, mend)
	require.NoError(t, err)
	moved, err := migrateParcels(t.Context(), kit.Engine)
	require.NoError(t, err)
	require.EqualValues(t, 2, moved)
	i, err := Deliver.Get(t.Context(), kit.Engine, waits)
	require.NoError(t, err)
	require.Equal(t, []any{2, "check", Parcel{"book", Price{1200, "EUR"}}}, []any{i.Version, i.Step, i.State})
	moved, err = migrateParcels(t.Context(), kit.Engine)
	require.NoError(t, err)
	require.Zero(t, moved, "it may be called again")
	durabletest.RequireAdvance(t, kit, 25*time.Hour)
	require.Equal(t, "book for 1200 EUR", durabletest.RequireDone(t, kit, Deliver, waits))
}

func TestAStateIsMendedByHand(t *testing.T) {
	t.Parallel()
	kit := kitWith(t, "", deliver())
	id := insert(t, kit, Deliver.New(Parcel{Item: "lamp", Price: Price{Currency: "EUR"}}))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "a parcel without a price")
	seen, err := Deliver.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.NoError(t, reprice(t.Context(), kit.Engine, seen, 3000))
	require.ErrorIs(t, reprice(t.Context(), kit.Engine, seen, 4000), engine.ErrConflict, "it has moved on")
	durabletest.RequireDrain(t, kit)
	require.Equal(t, "lamp for 3000 EUR", durabletest.RequireDone(t, kit, Deliver, id))
}
