package lab

import (
	"testing"

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
