package fsm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// A list of no queues, or of no machines, covers nothing. Only a nil list does not bound.
func TestEmptyBoundsCoverNothing(t *testing.T) {
	t.Parallel()
	for _, b := range []fsm.Bounds{{Queues: []string{}}, {Machines: []string{}}} {
		require.False(t, b.IsZero())
		require.False(t, b.Cover("q", "m", nil))
		require.False(t, b.Equal(fsm.Bounds{}))
		require.True(t, b.Equal(b))
		text, err := json.Marshal(b)
		require.NoError(t, err)
		var again fsm.Bounds
		require.NoError(t, json.Unmarshal(text, &again))
		require.True(t, b.Equal(again), string(text))
	}
	b := fsm.Bounds{Labels: map[string]string{}}
	require.True(t, b.IsZero())
	require.True(t, b.Cover("q", "m", nil))
}
