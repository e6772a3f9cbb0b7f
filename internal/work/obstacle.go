package work

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// ObstacleOf returns the obstacle that an error of a statement shows.
func ObstacleOf(err error) worker.Obstacle {
	switch {
	case store.IsReadOnly(err):
		return worker.ObstacleReadOnly
	case store.IsFull(err):
		return worker.ObstacleConnections
	case store.Classify(err) == store.FaultConfig:
		return worker.ObstacleRefused
	case store.IsReported(err):
		return worker.ObstacleError
	case errors.Is(err, context.DeadlineExceeded):
		return worker.ObstacleSilence
	default:
		return worker.ObstacleUnreachable
	}
}
