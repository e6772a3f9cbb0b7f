package hosts

import (
	"context"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/deliveries"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/delivery"
)

// pack has a delivery packed: by its instance if it has one, else as before the machine.
func pack(ctx context.Context, client *ent.Client, eng *engine.Engine, id int64) error {
	changed, err := client.Delivery.Update().
		Where(delivery.ID(id), delivery.StatusEQ(delivery.StatusPending), delivery.InstanceIDIsNil()).
		SetStatus(delivery.StatusPacked).Save(ctx)
	if err != nil || changed > 0 {
		return err
	}
	_, err = eng.Signal(ctx, deliveries.Key(id), deliveries.PendingToPacked.With(fsm.None{}))
	return err
}

// send creates a delivery with its instance.
func send(ctx context.Context, client *ent.Client, eng *engine.Engine, address string) (*ent.Delivery, error) {
	return client.Delivery.Create().SetAddress(address).SaveWith(ctx, eng, deliveries.New)
}
