package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// ParcelV1 is the state of release 1: start, then settle_payment.
type ParcelV1 struct {
	Item  string
	Cents int64
}

// Parcel is the state of release 2: start, check, which is new, and settle, which was
// settle_payment.
type Parcel struct {
	Item  string
	Price Price
}

type Price struct {
	Cents    int64
	Currency string
}

var (
	DeliverV1 = fsm.Declare[ParcelV1, string]("deliver", fsm.Version(1))
	Deliver   = fsm.Declare[Parcel, string]("deliver", fsm.Version(2))
)

// deliver is the definition of release 2, which takes what release 1 has begun.
func deliver() fsm.Definition {
	return Deliver.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[Parcel, string]) (fsm.Outcome, error) {
			return v.Next("check", v.State), nil
		}).To("check"),
		fsm.Step("check", func(_ context.Context, v *fsm.Visit[Parcel, string]) (fsm.Outcome, error) {
			if v.State.Price.Cents == 0 {
				return v.Fail(errors.New("a parcel without a price")), nil
			}
			return v.Next("settle", v.State), nil
		}).To("settle"),
		fsm.Step("settle", func(_ context.Context, v *fsm.Visit[Parcel, string]) (fsm.Outcome, error) {
			return v.Done(fmt.Sprintf("%s for %d %s", v.State.Item, v.State.Price.Cents, v.State.Price.Currency)), nil
		}).To(),
	).From(fsm.Migrate(DeliverV1, Deliver, priced, fsm.StepNames{"start": "start", "settle_payment": "check"}))
}

// priced converts a state. What it cannot convert stays as it was, paused with this error.
func priced(old ParcelV1) (Parcel, error) {
	if old.Cents < 0 {
		return Parcel{}, fmt.Errorf("%s for %d cents", old.Item, old.Cents)
	}
	return Parcel{old.Item, Price{old.Cents, "EUR"}}, nil
}

// migrateParcels moves what waits for long, rather than when each runs next. It moves nothing as
// long as one cannot be converted.
func migrateParcels(ctx context.Context, eng *engine.Engine) (moved int64, err error) {
	plan, err := eng.Admin().Migrate(ctx, Deliver.Name(), 1, 2)
	if err != nil {
		return 0, err
	}
	if err := plan.Err(); err != nil {
		return 0, err
	}
	done, err := plan.Apply(ctx, engine.Reason("release 2"))
	return done.Moved, err
}
