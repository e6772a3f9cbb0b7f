package lab

import (
	"context"
	"sync"
	"sync/atomic"
)

// Countdown waits until something has happened n times.
type Countdown struct {
	left atomic.Int64
	once sync.Once
	over chan struct{}
}

// NewCountdown from n.
func NewCountdown(n int) *Countdown {
	c := &Countdown{over: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// Done says that it has happened this often.
func (c *Countdown) Done(times int) {
	if c.left.Add(-int64(times)) <= 0 {
		c.once.Do(func() { close(c.over) })
	}
}

// Wait for the n-th time.
func (c *Countdown) Wait(ctx context.Context) error {
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
