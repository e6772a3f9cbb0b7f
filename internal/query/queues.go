package query

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/pausedqueue"
)

// PausedQueues lists the queues that are paused, by name.
func (r *Reader) PausedQueues(ctx context.Context) ([]*ent.PausedQueue, error) {
	list, err := r.composer().client.PausedQueue.Query().Order(pausedqueue.ByID()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list paused queues: %w", err)
	}
	return list, nil
}
