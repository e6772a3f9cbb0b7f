package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/gendurable/gendurable/bench/report"
)

// A quick look takes three minutes: it shows what a change did to throughput with many slots and
// with few, to steps, and to latency. Each target has the same share of the time, and begins no
// round that would go beyond it.
const (
	quickTargets = "P1,P3,P5,P22-2"
	quickScale   = 0.3
	quickMost    = 35 * time.Second
)

var quickFleets = []int{1, 4}

// quickly makes the bench a quick look, except where flags were set to something else, and returns
// the targets.
func (b *bench) quickly(flags *flag.FlagSet, only string) string {
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	b.quick, b.most = true, quickMost
	if !set["scale"] {
		b.scale = quickScale
	}
	if !set["processes"] {
		b.fleets = quickFleets
	}
	if only == "" {
		return quickTargets
	}
	return only
}

// brief prints the results as one table.
func (d *document) brief() string {
	all := report.Result{}
	for _, r := range d.Results {
		for _, s := range r.Series {
			s.Contender = r.ID + " " + s.Contender
			all.Series = append(all.Series, s)
		}
	}
	return all.Table()
}

// compare prints each figure of two files of results, before and after, and the ratio of their
// medians. What the peers have shows how much the machine has changed between them.
func compare(before, after string) (string, error) {
	var earlier, later document
	if err := earlier.read(before); err != nil {
		return "", err
	}
	if err := later.read(after); err != nil {
		return "", err
	}
	rows := [][]string{{"", "before", "after", "ratio", ""}}
	for _, r := range later.Results {
		for _, o := range earlier.Results {
			if o.ID == r.ID {
				for _, c := range r.Beside(&o) {
					rows = append(rows, []string{r.ID + " " + c.Name, c.Before.String(), c.After.String(), fmt.Sprintf("%.2f", c.Ratio()), c.Remark()})
				}
			}
		}
	}
	if len(rows) == 1 {
		return "", fmt.Errorf("%s and %s have no target in common", before, after)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "before: %s, %s\nafter:  %s, %s\n", earlier.Began.Format(time.RFC3339), earlier.Machine, later.Began.Format(time.RFC3339), later.Machine)
	b.WriteString(report.Columns(rows))
	return b.String(), nil
}
