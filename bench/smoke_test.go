package main

import (
	"bytes"
	"context"
	"flag"
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

// A quick look prints one table, and two of them can be compared.
func TestAQuickLookPrintsOneTableAndCompares(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: &out, rounds: 2, workers: defaultWorkers}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Float64Var(&b.scale, "scale", 1, "")
	require.NoError(t, flags.Parse([]string{"-scale", "0.002"}))
	require.Equal(t, quickTargets, b.quickly(flags, ""))
	require.Equal(t, "P22-0", b.quickly(flags, "P22-0"))
	require.InDelta(t, 0.002, b.scale, 0, "what was asked for stays")
	b.fleets = []int{1}
	list, err := chosen("P5,P22-2")
	require.NoError(t, err)
	d, err := b.all(context.Background(), list)
	require.NoError(t, err, out.String())
	require.Contains(t, out.String(), d.brief())
	require.Contains(t, d.brief(), "P22-2 ours, 1 ")
	require.Contains(t, d.brief(), "P5 river ")

	file := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, d.write(file))
	text, err := compare(file, file)
	require.NoError(t, err)
	require.Regexp(t, `P22-2 1-rate +\S.* 1\.00 +ranges overlap`, text)
	require.Regexp(t, `P5 ours: p50 ms +\S.* 1\.00 +ranges overlap`, text)
	_, err = compare(file, filepath.Join(t.TempDir(), "none.json"))
	require.Error(t, err)
}

func TestTargetsAreChosenByNameOrByTheirGroup(t *testing.T) {
	list, err := chosen("P22,P2")
	require.NoError(t, err)
	var ids []string
	for _, target := range list {
		ids = append(ids, target.id)
	}
	require.Equal(t, []string{"P22-0", "P22-2", "P22-10", "P2"}, ids)
	_, err = chosen("P22-1")
	require.ErrorContains(t, err, "P22-1")
}

func TestFleetsAreAscending(t *testing.T) {
	var b bench
	require.NoError(t, b.parseFleets("4,16"))
	require.Equal(t, []int{4, 16}, b.fleets)
	for _, wrong := range []string{"", "0", "4,4", "16,4", "4,x"} {
		require.Error(t, b.parseFleets(wrong), wrong)
	}
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
