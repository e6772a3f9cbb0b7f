package soak

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

func TestOnlyLatenessIsExcused(t *testing.T) {
	t.Parallel()
	w := steady.Watch(t)
	slow, wrong := late("%d of %d", 1, 2), errors.New("violated: fence")
	for _, err := range []error{slow, fmt.Errorf("wait: %w", slow), errors.Join(slow, fmt.Errorf("wait: %w", errSlow))} {
		require.True(t, onlyLate(err), err)
		require.ErrorIs(t, excused(err, w, time.Hour), ErrStoodStill, "it ran for a moment of an hour")
		if w.Stood() < heartbeat {
			require.NotErrorIs(t, excused(err, w, 0), ErrStoodStill, "it ran all the time")
		}
	}
	for _, err := range []error{nil, wrong, errors.Join(slow, wrong), fmt.Errorf("both: %w, %w", slow, wrong)} {
		require.False(t, onlyLate(err), err)
		require.NotErrorIs(t, excused(err, w, time.Hour), ErrStoodStill)
	}
}
