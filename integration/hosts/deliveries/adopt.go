package deliveries

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/delivery"
)

// open are the statuses from which transitions lead. Rows with another one need no instance.
var open = []Status{"pending", "packed", "out-for-delivery"}

// page bounds the rows that are locked at a time.
const page = 500

// Adopt gives each open delivery without an instance one that begins at the step of its status, and
// returns how many it has given. It may run while programs work, also twice at a time, and again
// after an error: it passes over the rows that have an instance.
func Adopt(ctx context.Context, client *ent.Client, eng *engine.Engine) (adopted int, err error) {
	rest := client.Delivery.Query().Where(delivery.StatusIn(open...), delivery.InstanceIDIsNil()).Order(delivery.ByID()).Limit(page)
	for next := rest; ; {
		ids, err := next.Clone().IDs(ctx)
		if err != nil || len(ids) == 0 {
			return adopted, err
		}
		n, err := adopt(ctx, client, eng, ids)
		if err != nil {
			return adopted, err
		}
		adopted += n
		next = rest.Clone().Where(delivery.IDGT(ids[len(ids)-1]))
	}
}

// adopt inserts the instances of some rows. It locks the rows, so that their statuses stay.
func adopt(ctx context.Context, client *ent.Client, eng *engine.Engine, ids []int64) (int, error) {
	tx, err := client.Tx(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	rows, err := tx.Delivery.Query().Where(delivery.IDIn(ids...), delivery.StatusIn(open...), delivery.InstanceIDIsNil(),
		func(s *sql.Selector) { s.ForUpdate() }).Order(delivery.ByID()).All(ctx)
	if err != nil {
		return 0, err
	}
	specs := make([]fsm.Spec, len(rows))
	for i, row := range rows {
		specs[i] = New(row)
	}
	done, err := tx.Durable(eng).InsertMany(ctx, specs) // of a key that is taken: the instance that has it
	if err != nil {
		return 0, err
	}
	for i, row := range rows {
		if done[i].Duplicate {
			if err := isOurs(ctx, eng, row, done[i].ID); err != nil {
				return 0, err
			}
		}
		if err := tx.Delivery.UpdateOne(row).SetInstanceID(done[i].ID).Exec(ctx); err != nil {
			return 0, err
		}
	}
	return len(rows), tx.Commit()
}

// isOurs returns an error if the instance that has a row's key is of another machine.
func isOurs(ctx context.Context, eng *engine.Engine, row *ent.Delivery, id fsm.ID) error {
	has, err := eng.Get(ctx, id)
	if err != nil {
		return err
	}
	if has.Machine != Machine.Name() {
		return fmt.Errorf("delivery %v: instance %d of machine %s has the key %s: have Key make others", row.ID, id, has.Machine, Key(row.ID))
	}
	return nil
}
