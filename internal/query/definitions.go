package query

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/definition"
	"github.com/gendurable/gendurable/ent/predicate"
)

// Definitions lists the stored definitions, of one machine or, if it is empty, of all, by machine
// and version. A version of 0 is any.
func (r *Reader) Definitions(ctx context.Context, machine string, version int) ([]*ent.Definition, error) {
	var which []predicate.Definition
	if machine != "" {
		which = append(which, definition.Machine(machine))
	}
	if version != 0 {
		which = append(which, definition.Version(int32(version))) //nolint:gosec // the caller has checked it
	}
	list, err := r.composer().client.Definition.Query().Where(which...).Order(definition.ByMachine(), definition.ByVersion()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	return list, nil
}
