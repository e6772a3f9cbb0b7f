package lab

import (
	"math"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Jobs begin as the maker of the tally opens it, whichever worker has them.
func TestJobsWaitUntilTheTallyOpens(t *testing.T) {
	tally, err := NewTally(3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tally.Close()) })
	other, err := OpenTally(tally.Path)
	require.NoError(t, err)
	require.False(t, other.Opened())

	var ran atomic.Int64
	seats := []*Seat{other.Seat(0), other.Seat(1)}
	for i := range 10 {
		go seats[i%2].Run(func() { ran.Add(1) })
	}
	for _, open := range []int{4, 7, math.MaxInt64} {
		tally.Open(open)
		require.Eventually(t, func() bool { ended, _ := tally.Ended(); return ended >= min(open, 10) }, time.Minute, time.Millisecond)
		require.Equal(t, int64(min(open, 10)), ran.Load(), "no more than were opened")
	}
	require.True(t, other.Opened())
	_, without := tally.Ended()
	require.Equal(t, 1, without, "the third worker has no job")
}

// A worker whose parent has gone does not wait for it.
func TestAReleasedSeatWaitsForNobody(t *testing.T) {
	tally, err := NewTally(1)
	require.NoError(t, err)
	seat := tally.Seat(0)
	seat.Release()
	seat.Run(func() {})
	ended, without := tally.Ended()
	require.Equal(t, 1, ended)
	require.Zero(t, without)
	require.Zero(t, tally.Started())
	seat.Started()
	require.Equal(t, 1, tally.Started())
	require.NoError(t, tally.Close())
	_, err = os.Stat(tally.Path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestATallyAddsUpTheTrafficOfAllWorkers(t *testing.T) {
	tally, err := NewTally(2)
	require.NoError(t, err)
	before := tally.Traffic()
	for i := range 2 {
		wire := tally.Seat(i).Wire
		wire.trips.Add(3)
		wire.commands.Add(5)
		wire.transactions.Add(2)
	}
	require.Equal(t, Traffic{Trips: 6, Commands: 10, Transactions: 4}, tally.Traffic().Minus(before))
	require.NoError(t, tally.Close())
}
