package store_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

// A line connects to a server that takes longer for a connection than any caller waits, by one
// attempt for all callers (T216).
func TestALineConnectsHoweverImpatientItsCallers(t *testing.T) {
	var dialled atomic.Int32
	b := newBench(t).beside(func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return dial(ctx, network, address)
		}
	})
	line := b.LineOf(me)
	require.False(t, line.Connected())
	steady.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return line.Check(ctx) == nil
	})
	require.True(t, line.Connected())
	require.LessOrEqual(t, dialled.Load(), int32(8), "an attempt has a second, then two, and so on")
	require.NoError(t, line.Close(t.Context()))

	// An attempt that is under way ends with the line, and leaves no session.
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		require.ErrorIs(t, line.Check(ctx), context.DeadlineExceeded)
		cancel()
	}
	require.NoError(t, line.Close(t.Context()))
	require.False(t, line.Connected())
}

// A dead address is given up, so that the next attempt may find another one.
func TestALineGivesUpADeadAddress(t *testing.T) {
	var dialled atomic.Int32
	b := newBench(t).beside(func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialled.Add(1) == 1 { // the first address of the moment swallows all
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, address)
		}
	})
	line := b.LineOf(me)
	steady.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return line.Check(ctx) == nil
	})
	require.GreaterOrEqual(t, dialled.Load(), int32(2))
	require.NoError(t, line.Close(t.Context()))
}
