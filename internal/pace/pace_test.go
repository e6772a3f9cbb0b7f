package pace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pace"
)

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	t.Parallel()
	const least, most = 10 * time.Millisecond, time.Second
	require.Zero(t, pace.Backoff(0, least, most))
	for n, ms := range []int{10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
		want := time.Duration(ms) * time.Millisecond
		for range 100 {
			d := pace.Backoff(n+1, least, most)
			require.LessOrEqual(t, d, want)
			require.GreaterOrEqual(t, d, want-want/4)
		}
	}
	require.LessOrEqual(t, pace.Backoff(1<<30, least, most), most)
	require.Positive(t, pace.Backoff(1<<30, least, most))
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.True(t, pace.Sleep(ctx, 0))
		require.True(t, pace.Sleep(ctx, time.Second))
		began := time.Now()
		require.False(t, pace.Sleep(ctx, time.Hour))
		require.Equal(t, 59*time.Second, time.Since(began))
		require.False(t, pace.Sleep(ctx, 0))
	})
}
