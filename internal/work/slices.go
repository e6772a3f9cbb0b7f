package work

import (
	"context"
	"time"
)

// A sweep finds rows for which no claim waits, and changes them: awaits that are over, leases that
// have expired, rows that the GC deletes. There may be 100,000 of them at once, and no other work
// may wait until they are done. So each sweep has its own loop, which [Worker.sweepLoops] lists,
// and keeps these rules:
//
//   - It works in slices of so many rows, each a short transaction, by process.slice.
//   - After each slice it makes room for others: it pauses for as long as the slice took.
//   - Sweeps take turns at the connections: the sweeps of a process have no more than
//     Config.Sweeps of them at a time, so claims, commits and polls find some.
//   - It ends when the worker drains: its contexts derive from process.looking.

// sweepLoop is a sweep with its loop.
type sweepLoop struct {
	name string
	run  func()
}

// sweepLoops lists the sweeps that this worker runs.
func (w *Worker) sweepLoops() []sweepLoop {
	p := w.process
	list := []sweepLoop{
		{"awaits", dueSweep{process: p, due: p.awaitsDue, pace: 1, sweep: p.timeOut, what: "time out awaits"}.run},
		{"deadlines", dueSweep{process: p, due: p.overdueDue, pace: sweepPace, most: maxPause, sweep: w.expiry.sweep, what: "fail instances over their deadline"}.run},
		{"kept signals", dueSweep{process: p, due: p.keptDue, pace: sweepPace, most: maxPause, sweep: p.handOver, what: "hand kept signals over"}.run},
		{"rest", w.rest.run},
		{"skips", w.skips.run},
		{"promotions", w.promotions.run},
		{"lines", (&refiler{p}).run},
		{"keys in line", (&scouter{p}).run},
		{"keys", (&sweeper{process: p, keys: w.keys, promotions: w.promotions}).run},
	}
	if !w.config.NoReaper {
		list = append(list, sweepLoop{"leases", newReaper(p, w.promotions).run})
	}
	if !w.config.NoGC {
		list = append(list, sweepLoop{"gc", (&pruner{process: p}).run})
	}
	return list
}

const (
	// sweepPace × the duration of a slice that has found no more is the pause behind a sweep of
	// deadlines, of a rest or of skips. One that passes over many rows takes long, and the next poll
	// would find the same rows. A look for occupants of kept signals finds most keys without one each
	// time, so it pauses for as long after each page.
	sweepPace = 10
	// maxPause bounds a pause that no promise bounds. A slice ends after statementTimeout.
	maxPause = 10 * time.Minute
)

// slice runs one slice of a sweep, when it is its turn, and returns how long it took.
func (p *process) slice(ctx context.Context, do func(ctx context.Context) error) (took time.Duration, err error) {
	if p.turns != nil {
		select {
		case p.turns <- struct{}{}:
			defer func() { <-p.turns }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	began := p.since()
	err = do(ctx)
	return p.since() - began, err
}

// slices runs slices until one says that there is no more, and makes room after each of the others.
// It returns how long the last one took.
func (p *process) slices(ctx context.Context, slice func(ctx context.Context) (more bool, err error)) (last time.Duration, err error) {
	for {
		var more bool
		last, err = p.slice(ctx, func(ctx context.Context) error {
			var err error
			more, err = slice(ctx)
			return err
		})
		if err != nil || !more || !p.room(last, deadlinePoll) {
			return last, err
		}
	}
}

// room pauses between slices, at most for so long. A worker that is worked by hand has no other
// work to make room for.
func (p *process) room(d, most time.Duration) bool {
	if p.byHand {
		return true
	}
	return p.pause(min(d, most))
}

// dueSweep sweeps whenever it is due, and lets others go ahead before. The pauses bound what it
// costs the server, and gather what becomes due meanwhile.
type dueSweep struct {
	*process
	due    <-chan struct{}
	behind time.Duration
	sweep  func(ctx context.Context) (last time.Duration, err error)
	pace   int           // × the duration of the last slice is the pause after a sweep,
	most   time.Duration // at most so long; 0: deadlinePoll
	what   string
}

func (s dueSweep) run() {
	if s.most == 0 {
		s.most = deadlinePoll
	}
	for {
		select {
		case <-s.draining:
			return
		case <-s.due:
		}
		if !s.pause(s.behind) {
			return
		}
		last, err := s.sweep(s.looking)
		if err != nil {
			s.trouble(s.what, err)
		}
		if !s.room(time.Duration(s.pace)*last, s.most) {
			return
		}
	}
}

// wake makes a sweep due, if is says that it found something to do.
func wake(due chan<- struct{}, is bool) {
	if !is {
		return
	}
	select {
	case due <- struct{}{}:
	default:
	}
}

// refusedRounds bounds how often one sweep continues because Postgres has refused rows.
const refusedRounds = 8

// more reports whether a sweep may have left rows: it was full, or it has just set rows apart that
// may have stood before others.
func more(done, most, refused, round int) bool {
	return done >= most || refused > 0 && round < refusedRounds
}

// passes runs slices, each behind the last row of the one before, or behind the same row if that
// was full. What a pass has ended may make more due, so it goes on until one has found nothing.
func (p *process) passes(ctx context.Context, slice func(ctx context.Context, after int64) (ended int, last int64, full bool, err error),
) (time.Duration, error) {
	after, found := int64(0), false
	return p.slices(ctx, func(ctx context.Context) (bool, error) {
		ended, last, full, err := slice(ctx, after)
		if err != nil {
			return false, err
		}
		found = found || ended > 0
		switch {
		case full:
		case last > 0:
			after = last
		case found:
			after, found = 0, false
		default:
			return false, nil
		}
		return true, nil
	})
}
