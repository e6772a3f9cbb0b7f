package step_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

// Entries that are too many, or cannot be stored, are left out; the others are there.
func TestTraceLeavesOutWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	carrier := map[string]string{"zipkin": "1", "Traceparent": "2", "tracestate": "3", "baggage": "4", "large": strings.Repeat("x", 1025), "nul": "a\x00"}
	env := &step.Env{Inject: func(context.Context) map[string]string { return carrier }}
	stored := func() (names []string) {
		var got map[string]string
		require.NoError(t, json.Unmarshal(env.Trace(t.Context()), &got))
		return slices.Sorted(maps.Keys(got))
	}
	require.Equal(t, []string{"Traceparent", "baggage", "tracestate", "zipkin"}, stored())
	for n := range 100 {
		carrier[fmt.Sprint("x", 100+n)] = "x"
	}
	require.Equal(t, []string{"Traceparent", "baggage", "tracestate", "x100", "x101", "x102", "x103", "x104"}, stored())
	require.Len(t, carrier, 106, "the host's own map")
	clear(carrier)
	require.Nil(t, env.Trace(t.Context()))
}
