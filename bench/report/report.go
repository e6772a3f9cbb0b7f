// Package report turns measured rounds into ratios, verdicts and lines.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Metric is a quantity of a sample.
type Metric string

// The metrics are in the order of a table's columns.
const (
	Rate         Metric = "rate"         // rows/s
	Inserted     Metric = "inserted"     // rows/s, if the time includes the insertion of the instances
	P50          Metric = "p50"          // ms
	P99          Metric = "p99"          // ms
	Time         Metric = "time"         // ms per statement
	Buffers      Metric = "buffers"      // per statement
	Client       Metric = "client"       // µs of the client's CPU per row
	Server       Metric = "server"       // µs of the server's CPU per row
	Kilo         Metric = "kilo"         // thousands of instructions of the whole machine per row
	Idle         Metric = "idle"         // share of the processors' time in which nothing ran
	WAL          Metric = "wal"          // bytes per row
	HOT          Metric = "hot"          // share of the updates that are heap-only
	Transactions Metric = "transactions" // per row
	Startup      Metric = "startup"      // ms of the server's CPU per connection, until it works at its steady cost
	Statements   Metric = "statements"   // per second
	Trips        Metric = "trips"        // round trips, per second or per call
	ServerLoad   Metric = "server-load"  // ms of the server's CPU per second
	ClientLoad   Metric = "client-load"  // ms of the client's CPU per second
)

var metrics = []struct {
	name   Metric
	header string
	format string
}{
	{Rate, "rows/s", "%.0f"}, {Inserted, "with insert", "%.0f"}, {P50, "p50 ms", "%.2f"}, {P99, "p99 ms", "%.2f"}, {Time, "ms", "%.3f"},
	{Buffers, "buffers", "%.0f"}, {Client, "client µs", "%.1f"}, {Server, "server µs", "%.1f"}, {Kilo, "k instr", "%.0f"},
	{Idle, "idle", "%.2f"}, {WAL, "WAL B", "%.0f"}, {HOT, "HOT", "%.2f"},
	{Transactions, "tx", "%.3f"}, {Startup, "start ms/conn", "%.1f"},
	{Statements, "statements/s", "%.2f"}, {Trips, "round trips", "%.2f"}, {ServerLoad, "server ms/s", "%.1f"}, {ClientLoad, "client ms/s", "%.1f"},
}

// Sample holds the values of one round of one contender.
type Sample map[Metric]float64

// Check compares two contenders of a trial by one metric, round by round. Without Against, it
// bounds the metric itself.
type Check struct {
	Label       string
	Of, Against string
	By          Metric
	AtLeast     float64 // 0: no such bound
	AtMost      float64 // 0: no such bound
	// Limit is the most that any Of can have. Where AtLeast × Against's median is more, the ratio is
	// printed and has no bound. 0: no limit.
	Limit float64
}

// Spread is the median and the range of a series.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of values.
func SpreadOf(values []float64) Spread {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// Verdict is the result of a check.
type Verdict struct {
	Check  string `json:"check"`
	Spread Spread `json:"spread"`
	Bound  string `json:"bound,omitempty"` // e.g. "≥ 2"; "": printed for comparison only
	Met    bool   `json:"met"`
	// Limited says that the bound is left out, as no contender could reach it.
	Limited bool `json:"limited,omitempty"`
}

// Single returns the verdict on one measurement.
func Single(check string, value, atLeast, atMost float64) Verdict {
	return verdict(check, Spread{Median: value, Min: value, Max: value}, atLeast, atMost)
}

func verdict(check string, s Spread, atLeast, atMost float64) Verdict {
	v := Verdict{Check: check, Spread: s, Met: true}
	switch {
	case atLeast > 0:
		v.Bound, v.Met = "≥ "+short(atLeast), s.Median >= atLeast
	case atMost > 0:
		v.Bound, v.Met = "≤ "+short(atMost), s.Median <= atMost
	}
	return v
}

// Median returns the median of values; 0 if there are none.
func Median(values []float64) float64 { return SpreadOf(values).Median }

// Series holds the rounds of a contender.
type Series struct {
	Contender string   `json:"contender"`
	Samples   []Sample `json:"samples"`
}

// Result is the result of a target.
type Result struct {
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Verdicts []Verdict `json:"verdicts"`
	Series   []Series  `json:"series"`
	Notes    []string  `json:"notes,omitempty"`
	Seconds  float64   `json:"seconds"`
}

// Judge applies the checks to the series.
func (r *Result) Judge(checks []Check) {
	for _, c := range checks {
		limited := c.Limit > 0 && c.AtLeast*Median(r.values(c.Against, c.By)) > c.Limit
		if limited {
			c.AtLeast = 0
		}
		v := verdict(c.Label, SpreadOf(r.compare(c)), c.AtLeast, c.AtMost)
		v.Limited = limited
		r.Verdicts = append(r.Verdicts, v)
	}
}

// compare pairs the rounds of both contenders.
func (r *Result) compare(c Check) (values []float64) {
	of, against := r.samples(c.Of), r.samples(c.Against)
	for i, s := range of {
		v := s[c.By]
		if c.Against != "" {
			if i >= len(against) || against[i][c.By] == 0 {
				continue
			}
			v /= against[i][c.By]
		}
		values = append(values, v)
	}
	return values
}

// values returns what the rounds of a contender have of a metric.
func (r *Result) values(contender string, by Metric) (values []float64) {
	for _, sample := range r.samples(contender) {
		if v, ok := sample[by]; ok {
			values = append(values, v)
		}
	}
	return values
}

func (r *Result) samples(contender string) []Sample {
	for _, s := range r.Series {
		if s.Contender == contender {
			return s.Samples
		}
	}
	return nil
}

// Line returns the target in one line: its ratios, and whether it is met.
func (r *Result) Line() string {
	var b strings.Builder
	b.WriteString(r.ID)
	var missed []string
	bounds := 0
	for _, v := range r.Verdicts {
		fmt.Fprintf(&b, " %s=%s", v.Check, v.Spread)
		if v.Limited {
			b.WriteString(" limited")
		}
		if v.Bound != "" {
			bounds++
		}
		if !v.Met {
			missed = append(missed, v.Check+" "+v.Bound)
		}
	}
	switch {
	case len(missed) > 0:
		b.WriteString("  NOT MET: " + strings.Join(missed, ", "))
	case bounds > 0:
		b.WriteString("  met")
	}
	return b.String()
}

// Table returns the medians of each contender.
func (r *Result) Table() string {
	if len(r.Series) == 0 {
		return ""
	}
	header := []string{""}
	for _, m := range metrics {
		if r.has(m.name) {
			header = append(header, m.header)
		}
	}
	rows := [][]string{header}
	for _, s := range r.Series {
		row := []string{s.Contender}
		for _, m := range metrics {
			if !r.has(m.name) {
				continue
			}
			cell := ""
			if values := r.values(s.Contender, m.name); len(values) > 0 {
				cell = fmt.Sprintf(m.format, SpreadOf(values).Median)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return Columns(rows)
}

func (r *Result) has(m Metric) bool {
	return slices.ContainsFunc(r.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Samples, func(x Sample) bool { _, ok := x[m]; return ok })
	})
}

// Columns aligns the first column to the left, the others to the right.
func Columns(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString("  ")
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short writes a number with three significant digits.
func short(v float64) string {
	switch abs := max(v, -v); {
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// Quantiles returns the median and the 99th percentile of durations, in milliseconds.
func Quantiles[T cmp.Ordered](values []T, milliseconds func(T) float64) (p50, p99 float64) {
	if len(values) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return milliseconds(sorted[int(q*float64(len(sorted)-1)+0.5)]) }
	return at(0.5), at(0.99)
}
