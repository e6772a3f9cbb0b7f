package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the trials start this program again as a worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every target runs with few rows, compares what it says it does, and prints it.
func TestEveryTargetRunsAndPrints(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: &out, scale: 0.002, rounds: 1, workers: defaultWorkers, profiles: filepath.Join(t.TempDir(), "profiles")}
	d, err := b.all(context.Background(), targets)
	require.NoError(t, err, out.String())
	require.Len(t, d.Results, len(targets))
	for i, r := range d.Results {
		require.Equal(t, targets[i].id, r.ID)
		require.NotEmpty(t, r.Verdicts, r.ID)
		require.Contains(t, out.String(), r.Line())
		for _, v := range r.Verdicts {
			require.Positive(t, v.Spread.Median, "%s %s was not measured", r.ID, v.Check)
			require.LessOrEqual(t, v.Spread.Min, v.Spread.Median)
			require.GreaterOrEqual(t, v.Spread.Max, v.Spread.Median)
		}
	}
	t.Log(out.String())
}
