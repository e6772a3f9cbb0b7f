package query

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/pausedqueue"
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

// PausedQueues lists the queues that are paused, by name.
func (r *Reader) PausedQueues(ctx context.Context) ([]*ent.PausedQueue, error) {
	list, err := r.client.PausedQueue.Query().Order(pausedqueue.ByID()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list paused queues: %w", err)
	}
	return list, nil
}
