package query

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/schedule"
)

// Schedules lists the schedules behind a name, in order of names.
func (r *Reader) Schedules(ctx context.Context, after string, most int) ([]*ent.Schedule, error) {
	// No schedule has an empty name.
	list, err := r.client.Schedule.Query().Where(schedule.IDGT(after)).Order(schedule.ByID()).Limit(most).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	return list, nil
}
