package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/gendurable/gendurable/bench/chart"
	"github.com/gendurable/gendurable/bench/report"
)

// leading lists the metrics that a target's chart can show: it shows the first one that the samples
// have.
var leading = []struct {
	metric report.Metric
	unit   string
}{{report.Rate, "/s"}, {report.P50, "ms"}, {report.Time, "ms"}, {report.Trips, ""}}

// quantities are measured in an endurance run, each in a separate chart.
var quantities = []struct {
	name, title, unit string
	value             func(Moment) float64
}{
	{"rate", "jobs a second", "", rate},
	{"rss", "resident memory of the worker", "MB", rss},
	{"table", "size of the table", "MB", tables},
	{"indexes", "size of its indexes", "MB", func(m Moment) float64 { return m.Indexes }},
	{"dead", "dead tuples", "", func(m Moment) float64 { return float64(m.Dead) }},
	{"backlog", "jobs that wait", "", func(m Moment) float64 { return float64(m.Backlog) }},
}

// draw makes the charts of a file of results: <target>.svg for each target, <phase>-<quantity>.svg
// for each phase of an endurance run.
func draw(file, directory string) error {
	var d document
	err := d.read(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // to be read by anyone
		return err
	}
	for name, svg := range d.charts() {
		path := filepath.Join(directory, name+".svg")
		err = errors.Join(err, os.WriteFile(path, []byte(svg), 0o644)) //nolint:gosec // to be read by anyone
	}
	return err
}

func (d *document) charts() map[string]string {
	out := map[string]string{}
	for _, r := range d.Results {
		for _, l := range leading {
			if bars := bars(r, l.metric); len(bars) > 0 {
				out[strings.ToLower(r.ID)] = chart.Bars(r.ID+" "+r.Title, l.unit, bars)
				break
			}
		}
	}
	phases := map[string][]Course{}
	for _, c := range d.Courses {
		phases[c.Phase] = append(phases[c.Phase], c)
	}
	for phase, courses := range phases {
		for _, q := range quantities {
			var lines []chart.Line
			for _, c := range courses {
				line := chart.Line{Name: c.System}
				for _, m := range c.Moments {
					line.X, line.Y = append(line.X, m.Minute), append(line.Y, q.value(m))
				}
				lines = append(lines, line)
			}
			out[strings.ReplaceAll(phase, " ", "-")+"-"+q.name] = chart.Lines(q.title+" ("+phase+")", "minutes", q.unit, lines)
		}
	}
	return out
}

func bars(r report.Result, by report.Metric) (out []chart.Bar) {
	for _, s := range r.Series {
		var values []float64
		for _, sample := range s.Samples {
			if v, ok := sample[by]; ok {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			spread := report.SpreadOf(values)
			out = append(out, chart.Bar{Label: s.Contender, Median: spread.Median, Min: spread.Min, Max: spread.Max})
		}
	}
	return out
}
