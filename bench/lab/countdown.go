package lab

import (
	"context"
	"sync"
	"sync/atomic"
)

// Countdown waits for n events.
type Countdown struct {
	left atomic.Int64
	once sync.Once
	over chan struct{}
}

// NewCountdown returns a countdown from n.
func NewCountdown(n int) *Countdown {
	c := &Countdown{over: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// Done counts this many events.
func (c *Countdown) Done(times int) {
	if c.left.Add(-int64(times)) <= 0 {
		c.once.Do(func() { close(c.over) })
	}
}

// Wait waits for the n-th event.
func (c *Countdown) Wait(ctx context.Context) error {
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
