package report

import (
	"fmt"
	"slices"
)

// Change is a figure in two runs.
type Change struct {
	Name          string
	Before, After Spread
}

// Ratio returns what the median has become of what it was; 0 if it was 0.
func (c Change) Ratio() float64 {
	if c.Before.Median == 0 {
		return 0
	}
	return c.After.Median / c.Before.Median
}

// Remark says where the two ranges overlap, so that the rounds do not tell the runs apart.
func (c Change) Remark() string {
	if c.Before.Min <= c.After.Max && c.After.Min <= c.Before.Max {
		return "ranges overlap"
	}
	return ""
}

// String returns the median and the range.
func (s Spread) String() string {
	if s.Min == s.Max {
		return short(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.Median), short(s.Min), short(s.Max))
}

// Beside returns the verdicts and the figures that this result and an earlier one of the same
// target both have: first the ratios, then each contender's metrics.
func (r *Result) Beside(earlier *Result) (changes []Change) {
	for _, v := range r.Verdicts {
		i := slices.IndexFunc(earlier.Verdicts, func(e Verdict) bool { return e.Check == v.Check })
		if i >= 0 {
			changes = append(changes, Change{v.Check, earlier.Verdicts[i].Spread, v.Spread})
		}
	}
	for _, s := range r.Series {
		for _, m := range metrics {
			before, after := earlier.values(s.Contender, m.name), r.values(s.Contender, m.name)
			if len(before) > 0 && len(after) > 0 {
				changes = append(changes, Change{s.Contender + ": " + m.header, SpreadOf(before), SpreadOf(after)})
			}
		}
	}
	return changes
}
