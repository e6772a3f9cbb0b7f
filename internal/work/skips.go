package work

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// skipMost bounds the nodes that one transaction skips, since it also locks their roots.
	skipMost = 200

	// A sweep passes by nodes whose root is locked, another node's end maybe, which takes a moment. So
	// the process that has left nodes to be skipped looks again after skipLeast, doubled up to
	// skipLate, skipTries times. Then it leaves them to the polls.
	skipLeast = 5 * time.Millisecond
	skipLate  = 200 * time.Millisecond
	skipTries = 8
)

// skips ends nodes of graphs that are to be skipped, whichever machines and queues this process
// has. The process whose statement has left such a node begins at once. A poll finds what is left:
// nodes left by a process that died, by an operator, or since they were locked.
type skips struct {
	*process
	promotions *promotions
}

func (s *skips) run() {
	dueSweep{process: s.process, due: s.skipsDue, pace: sweepPace, sweep: s.patiently, what: "fail nodes that are to be skipped"}.run()
}

// patiently sweeps, and again while something is left that this process has made due. An error may
// have left something as well.
func (s *skips) patiently(ctx context.Context) (last time.Duration, err error) {
	own := s.skipsOwn.Swap(false)
	for try := 1; ; try++ {
		last, err = s.sweep(ctx)
		if !own {
			return last, err
		}
		left := false
		if err == nil {
			_, err = s.slice(ctx, func(ctx context.Context) (err error) {
				left, err = s.db.ToSkip(ctx)
				return err
			})
		}
		if !left && err == nil || try > skipTries || !s.pause(pace.Backoff(try, skipLeast, skipLate)) {
			return last, err
		}
	}
}

// sweep skips what it can have at once. A pass makes further nodes due to be skipped, so it goes on
// until a pass has found nothing.
func (s *skips) sweep(ctx context.Context) (last time.Duration, err error) {
	return s.passes(ctx, func(ctx context.Context, after int64) (ended int, last int64, full bool, err error) {
		done, err := s.skip(ctx, after)
		return len(done.Failed), done.Last, false, err
	})
}

// skip runs one transaction.
func (s *skips) skip(ctx context.Context, after int64) (store.Skipped, error) {
	done, err := s.db.Skip(ctx, uuid.NewString(), after, skipMost)
	if err != nil {
		return done, err
	}
	s.reportRefused("skip a node", done.Refused)
	s.Nudge(done.Queues...)
	s.sweepsAreDue(done.Rest, false) // this sweep goes on to what it has left to be skipped
	s.promotions.add(done.Missed)
	s.ended(done.Failed)
	return done, nil
}

// sweepsAreDue wakes the sweeps for which a statement of this process has left something.
func (p *process) sweepsAreDue(rest, skips bool) {
	if skips {
		p.skipsOwn.Store(true)
	}
	p.wakeSweeps(rest, skips)
}

// wakeSweeps wakes the sweeps of children that no join waits for, and of nodes to be skipped.
func (p *process) wakeSweeps(rest, skips bool) {
	wake(p.restDue, rest)
	wake(p.skipsDue, skips)
}
