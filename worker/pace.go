package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// statementTimeout bounds one statement from the client's side: the server's own limit is shorter, so this is for networks that swallow.
const statementTimeout = 75 * time.Second

// backoff before the n-th repetition: doubled from least up to most; none before the first try. Jitter only shortens.
func backoff(n int, least, most time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	return jittered(min(most, least<<min(n-1, 16)))
}

// jittered shortens a delay by up to a quarter, so that processes that started together part.
func jittered(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d - rand.N(d/4) //nolint:gosec // jitter
}

// sleep waits, and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
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
