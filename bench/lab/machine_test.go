package lab

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A loop takes at least as many instructions as turns, and the processors' time goes on.
func TestMachineCountsWhatItDoes(t *testing.T) {
	c, err := openCounters()
	if err != nil {
		t.Logf("no instructions are counted here: %v", err)
	}
	before := readMachine(c)
	const turns = 200_000_000
	sum := 0
	for i := range turns {
		sum += i ^ sum
	}
	after := readMachine(c)
	require.NotZero(t, sum)
	require.Greater(t, after.ticks, before.ticks)
	require.GreaterOrEqual(t, after.idle, before.idle)
	require.LessOrEqual(t, after.idle-before.idle, after.ticks-before.ticks)
	if c == nil {
		require.Zero(t, after.instructions)
		return
	}
	require.Greater(t, after.instructions-before.instructions, int64(turns))
	require.NoError(t, c.close())
}

// The clock of a process goes with what proc(5) says of it, and is finer.
func TestTheClockOfAProcessIsItsCPUTime(t *testing.T) {
	for sum := 0; sum < 50_000_000; sum++ { // some ticks
		runtime.KeepAlive(sum)
	}
	before, err := readStat("/proc/self/stat")
	require.NoError(t, err)
	used := before.used()
	after, err := readStat("/proc/self/stat")
	require.NoError(t, err)
	require.Positive(t, used)
	require.GreaterOrEqual(t, used, time.Duration(before.own-2)*tick)
	require.LessOrEqual(t, used, time.Duration(after.own+2)*tick)
	require.NotZero(t, used%tick)
}
