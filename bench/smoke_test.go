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

// Every target runs with few rows, makes the comparisons that it declares, and prints them.
func TestEveryTargetRunsAndPrints(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: &out, scale: 0.002, rounds: 1, workers: defaultWorkers, profiles: filepath.Join(t.TempDir(), "profiles"), fleets: []int{1, 2}}
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

// The endurance run lasts seconds here, and its results can be drawn.
func TestEnduranceRunsPrintsAndDraws(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: &out, scale: 0.002, rounds: 1, workers: defaultWorkers}
	d, err := b.endure(context.Background(), 0.05, "")
	require.NoError(t, err, out.String())
	require.Contains(t, out.String(), "\nP13 MB=")
	require.Contains(t, out.String(), "\nP14 rate-kept=")
	require.Len(t, d.Courses, 5)
	for _, c := range d.Courses {
		require.NotEmpty(t, c.Moments, "%s %s", c.System, c.Phase)
		require.Positive(t, c.most(rss), "%s %s", c.System, c.Phase)
	}
	file, charts := filepath.Join(t.TempDir(), "results.json"), t.TempDir()
	require.NoError(t, d.write(file))
	require.NoError(t, draw(file, charts))
	drawn, err := filepath.Glob(filepath.Join(charts, "*.svg"))
	require.NoError(t, err)
	require.Len(t, drawn, 3*len(quantities), "of drain, steady and pinned xmin")
}
