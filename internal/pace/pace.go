// Package pace says how long to wait before something is tried again. Every loop of the engine that
// repeats what failed keeps the same pace.
//
// It imports nothing of the project.
package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pause before the n-th repetition: least, doubled up to most. There is none before
// the first try, which is n = 0. Jitter only shortens it.
func Backoff(n int, least, most time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	return Jittered(min(most, least<<min(n-1, 16)))
}

// Jittered shortens a delay by up to a quarter, so that processes that started together part.
func Jittered(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d - rand.N(d/4) //nolint:gosec // jitter
}

// Sleep waits for d, and reports whether it could: false as soon as ctx ends. Without a delay it
// only looks at ctx.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
