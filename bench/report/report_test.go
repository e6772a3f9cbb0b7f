package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudgeComparesRoundByRound(t *testing.T) {
	r := Result{ID: "P1", Series: []Series{
		{"ours", []Sample{{Rate: 20}, {Rate: 60}, {Rate: 90}}},
		{"peer", []Sample{{Rate: 10}, {Rate: 20}, {Rate: 100}}},
	}}
	r.Judge([]Check{
		{Label: "peer", Of: "ours", Against: "peer", By: Rate, AtLeast: 2},
		{Label: "close", Of: "ours", Against: "peer", By: Rate, AtMost: 1.5},
		{Label: "rate", Of: "ours", By: Rate},
	})
	require.Equal(t, []Verdict{
		{Check: "peer", Spread: Spread{Median: 2, Min: 0.9, Max: 3}, Bound: "≥ 2.00", Met: true},
		{Check: "close", Spread: Spread{Median: 2, Min: 0.9, Max: 3}, Bound: "≤ 1.50", Met: false},
		{Check: "rate", Spread: Spread{Median: 60, Min: 20, Max: 90}, Met: true},
	}, r.Verdicts)
	require.Equal(t, "P1 peer=2.00 (0.90–3.00) close=2.00 (0.90–3.00) rate=60.0 (20.0–90.0)  NOT MET: close ≤ 1.50", r.Line())
}

func TestAnEvenNumberOfRoundsHasItsMedianBetweenTwo(t *testing.T) {
	require.Equal(t, Spread{Median: 3, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 2, 4}))
}

func TestQuantiles(t *testing.T) {
	values := make([]int, 101)
	for i := range values {
		values[i] = 100 - i
	}
	p50, p99 := Quantiles(values, func(v int) float64 { return float64(v) })
	require.InDelta(t, 50, p50, 0)
	require.InDelta(t, 99, p99, 0)
}

func TestABoundThatNobodyCanReachIsLeftOut(t *testing.T) {
	check := Check{Label: "peer", Of: "ours", Against: "peer", By: Rate, AtLeast: 1.2, Limit: 100}
	r := Result{ID: "P22", Series: []Series{{"ours", []Sample{{Rate: 80}}}, {"peer", []Sample{{Rate: 80}}}}}
	r.Judge([]Check{check})
	require.Equal(t, "P22 peer=1.00  NOT MET: peer ≥ 1.20", r.Line())

	r = Result{ID: "P22", Series: []Series{{"ours", []Sample{{Rate: 90}}}, {"peer", []Sample{{Rate: 90}}}}}
	r.Judge([]Check{check})
	require.Equal(t, []Verdict{{Check: "peer", Spread: Spread{Median: 1, Min: 1, Max: 1}, Met: true, Limited: true}}, r.Verdicts)
	require.Equal(t, "P22 peer=1.00 limited", r.Line())
}

func TestTwoRunsBesideEachOther(t *testing.T) {
	run := func(rates ...float64) *Result {
		r := &Result{ID: "P1", Series: []Series{{Contender: "ours"}, {"peer", []Sample{{Rate: 10}, {Rate: 10}, {Rate: 10}}}}}
		for _, rate := range rates {
			r.Series[0].Samples = append(r.Series[0].Samples, Sample{Rate: rate})
		}
		r.Judge([]Check{{Label: "peer", Of: "ours", Against: "peer", By: Rate}})
		return r
	}
	changes := run(30, 35, 40).Beside(run(10, 20, 29))
	require.Equal(t, []Change{
		{"peer", Spread{2, 1, 2.9}, Spread{3.5, 3, 4}},
		{"ours: rows/s", Spread{20, 10, 29}, Spread{35, 30, 40}},
		{"peer: rows/s", Spread{10, 10, 10}, Spread{10, 10, 10}},
	}, changes)
	require.InDelta(t, 1.75, changes[0].Ratio(), 1e-9)
	require.Empty(t, changes[0].Remark())
	require.Equal(t, "ranges overlap", changes[2].Remark())
	require.Equal(t, "2.00 (1.00–2.90)", changes[0].Before.String())
}
