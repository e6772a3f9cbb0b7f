package query

import (
	"context"
	"fmt"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/gatekey"
)

// GateKeys lists the keys of a gate that are closed at a time, slowed down, or have a weight or
// their own places, by key.
func (r *Reader) GateKeys(ctx context.Context, gate string, now time.Time, most int) ([]*ent.GateKey, error) {
	list, err := r.composer().client.GateKey.Query().Where(
		gatekey.Or(gatekey.ID(gate), func(s *sql.Selector) { s.Where(sql.HasPrefix(s.C(gatekey.FieldID), gate+"/")) }),
		gatekey.Or(gatekey.ClosedUntilGT(now), gatekey.PaceLT(1), gatekey.WeightNEQ(1), gatekey.PlacesNotNil()),
	).Order(gatekey.ByID()).Limit(most).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys of gate %q: %w", gate, err)
	}
	return list, nil
}
