package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// The measures of a chart, in the units of its view box.
const (
	chartMinutes = 60
	chartWidth   = 600
	chartHeight  = 84
	sparkWidth   = 90
	sparkHeight  = 22
)

// pulse is what happened in the last hour, in one queue or in all. The zero value knows nothing.
type pulse struct {
	In, Out, Failed int64
	InOver, OutOver time.Duration // of how long In, and Out and Failed, are: an hour, or less where much happens
	in, out, failed [chartMinutes]int64
}

// rates reads what happened in the last hour in the queues that the access of ctx may see. If
// the access is bound to machines or labels, these are none: rates are not told apart by them.
func (s *server) rates(ctx context.Context) (map[string]*pulse, error) {
	access := accessOf(ctx)
	if !access.byQueue() {
		return nil, nil
	}
	all, err := gather(ctx, s, func(ctx context.Context, at *site) (engine.Rates, error) {
		return heavy(ctx, s, at, "rates", s.Refresh, func(ctx context.Context) (engine.Rates, error) {
			return at.engine.Rates(ctx, engine.RatesOptions{})
		})
	})
	if err != nil {
		return nil, err
	}
	return pulses(mergeRates(values(all)), func(queue string) bool { return access.sees(queue, "") }), nil
}

// pulses has the pulse of each queue that may be seen, and under "" the pulse of all of them.
func pulses(r engine.Rates, sees func(queue string) bool) map[string]*pulse {
	all := map[string]*pulse{}
	of := func(queue string) *pulse {
		if all[queue] == nil {
			all[queue] = &pulse{InOver: r.At.Sub(r.InsertedSince), OutOver: r.At.Sub(r.EndedSince)}
		}
		return all[queue]
	}
	of("")
	last := r.At.Truncate(time.Minute)
	for _, b := range r.Bins {
		if !sees(b.Queue) {
			continue
		}
		for _, p := range []*pulse{of(""), of(b.Queue)} {
			p.In, p.Out, p.Failed = p.In+b.Inserted, p.Out+b.Ended, p.Failed+b.Failed
			if n := chartMinutes - 1 - int(last.Sub(b.At)/time.Minute); n >= 0 && n < chartMinutes {
				p.in[n], p.out[n], p.failed[n] = p.in[n]+b.Inserted, p.out[n]+b.Ended, p.failed[n]+b.Failed
			}
		}
	}
	return all
}

// InRate and OutRate are per minute.
func (p *pulse) InRate() string { return perMinute(p.In, p.InOver) }

// OutRate is how many end in a minute.
func (p *pulse) OutRate() string { return perMinute(p.Out, p.OutOver) }

// FailedRate is how many fail in a minute.
func (p *pulse) FailedRate() string { return perMinute(p.Failed, p.OutOver) }

func perMinute(n int64, over time.Duration) string {
	if n == 0 {
		return "0"
	}
	rate := float64(n) / max(over.Minutes(), 1.0/60)
	switch {
	case rate >= 10:
		return grouped(int64(rate + 0.5))
	case rate >= 0.1:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return "< 0.1"
}

// Most is the largest number of any minute.
func (p *pulse) Most() int64 {
	most := int64(1)
	for n := range chartMinutes {
		most = max(most, p.in[n], p.out[n])
	}
	return most
}

// Ended are the bars of what ended, and Fails the part of them that failed.
func (p *pulse) Ended() string { return bars(p.out, p.Most()) }

// Fails are the bars of what failed.
func (p *pulse) Fails() string { return bars(p.failed, p.Most()) }

// Inserted is the line of inserts.
func (p *pulse) Inserted() string { return points(p.in, p.Most(), chartWidth, chartHeight) }

// Spark is a small line of what ended.
func (p *pulse) Spark() string {
	most := int64(1)
	for _, n := range p.out {
		most = max(most, n)
	}
	return points(p.out, most, sparkWidth, sparkHeight)
}

// Unknown is how much of the chart, from the left, is of a time of which not all is known.
func (p *pulse) Unknown() int {
	known := min(p.InOver, p.OutOver, time.Hour)
	return chartWidth - int(chartWidth*known/time.Hour)
}

// Text tells those who do not see a chart what it shows.
func (p *pulse) Text() string {
	return fmt.Sprintf("In the last hour %s inserted, %s ended, %s of them failed", grouped(p.In), grouped(p.Out), grouped(p.Failed))
}

func bars(of [chartMinutes]int64, most int64) string {
	const each = chartWidth / chartMinutes
	var d strings.Builder
	for n, count := range of {
		if count > 0 {
			high := max(1, int(count*(chartHeight-2)/most))
			fmt.Fprintf(&d, "M%d %dh%dv%dh-%dz", n*each+1, chartHeight-high, each-2, high, each-2)
		}
	}
	return d.String()
}

// points draws a line through the middles of the minutes.
func points(of [chartMinutes]int64, most int64, width, height float64) string {
	var out strings.Builder
	for n, count := range of {
		x := (float64(n) + 0.5) * width / chartMinutes
		fmt.Fprintf(&out, "%.1f,%.1f ", x, 1+(height-2)*(1-float64(count)/float64(cmp.Or(most, 1))))
	}
	return strings.TrimSpace(out.String())
}
