package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// MaxRates is how many of the newest instances [Engine.Rates] looks at, of those that were inserted
// and of those that have ended each.
const MaxRates = 20_000

// These are the defaults and bounds of [RatesOptions].
const (
	ratesPast    = time.Hour
	maxRatesPast = 7 * 24 * time.Hour
	ratesBin     = time.Minute
	maxRateBins  = 1000
)

// RatesOptions say of which time [Engine.Rates] are. The zero value is the last hour, by the
// minute.
type RatesOptions struct {
	Past time.Duration // up to now: a minute to 7 days; 0: an hour
	Bin  time.Duration // of which each number is: a second to Past, at most 1,000 of them; 0: a minute
}

// Rates are how many instances were inserted and have ended lately.
type Rates struct {
	At            time.Time     `json:"at"` // the server's clock
	Bin           time.Duration `json:"bin_ns"`
	InsertedSince time.Time     `json:"inserted_since"` // what was inserted before was not looked at
	EndedSince    time.Time     `json:"ended_since"`    // what ended before was not looked at
	Bins          []RateBin     `json:"bins"`           // by queue and time; those of nothing are left out
}

// RateBin counts what happened in a queue in the time of one bin.
type RateBin struct {
	Queue    string    `json:"queue"`
	At       time.Time `json:"at"` // its begin, a whole multiple of the bin
	Inserted int64     `json:"inserted"`
	Ended    int64     `json:"ended"`  // failed ones included
	Failed   int64     `json:"failed"` // of them
}

// Rates counts how many instances were inserted, have ended and have failed lately, by queue, for
// charts. It needs no history and remembers nothing: it looks at the newest MaxRates of both, by
// the primary key and the index of when they ended, in one statement. Instances that are gone, also
// those whose retention is 0, are not counted.
//
// Errors: a *[QueryError].
func (e *Engine) Rates(ctx context.Context, o RatesOptions) (out Rates, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	f := store.RateFilter{Past: cmp.Or(o.Past, ratesPast), Bin: cmp.Or(o.Bin, ratesBin), Most: MaxRates}
	switch {
	case f.Past < time.Minute || f.Past > maxRatesPast:
		return Rates{}, badQuery("Past", "%v, want 1m to %v", f.Past, maxRatesPast)
	case f.Bin < time.Second || f.Bin > f.Past:
		return Rates{}, badQuery("Bin", "%v, want 1s to Past, %v", f.Bin, f.Past)
	case f.Past/f.Bin > maxRateBins:
		return Rates{}, badQuery("Bin", "%v divides Past (%v) into %d bins, want at most %d", f.Bin, f.Past, f.Past/f.Bin, maxRateBins)
	}
	var found store.Rates
	err = e.patiently(ctx, task{doing: "count what was inserted and what has ended"}, func() error {
		found, err = e.store.Rates(ctx, &f)
		return err
	})
	if err != nil {
		return Rates{}, err
	}
	out = Rates{At: found.At.UTC(), Bin: f.Bin, InsertedSince: found.InsertedSince.UTC(), EndedSince: found.EndedSince.UTC(),
		Bins: make([]RateBin, len(found.Bins))}
	for i, b := range found.Bins {
		out.Bins[i] = RateBin{Queue: b.Queue, At: b.At.UTC(), Inserted: b.Inserted, Ended: b.Ended, Failed: b.Failed}
	}
	slices.SortFunc(out.Bins, func(a, b RateBin) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), a.At.Compare(b.At)) })
	return out, nil
}
