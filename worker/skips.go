package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/store"
)

// skipMost bounds the nodes that one transaction skips, since it also locks their roots.
const skipMost = 200

// skips ends nodes of graphs that are to be skipped, whichever machines and queues this process
// has. The process whose statement has left such a node begins at once. A poll finds what is left:
// by a process that died, by an operator, or since somebody had it locked.
type skips struct {
	*process
	promotions *promotions
}

func (s *skips) run() {
	s.sweeps(s.skipsDue, 0, s.sweep, "fail nodes that are to be skipped")
}

// sweep skips what it can have at once. Nodes behind those of a pass are to be skipped by that, so
// it goes on until a pass has found nothing.
func (s *skips) sweep(ctx context.Context) error {
	for after, found := int64(0), false; ; {
		done, err := s.slice(ctx, after)
		if err != nil {
			return err
		}
		found = found || len(done.Failed) > 0
		switch {
		case done.Last > 0:
			after = done.Last
		case found:
			after, found = 0, false
		default:
			return nil
		}
	}
}

// slice runs one transaction.
func (s *skips) slice(ctx context.Context, after int64) (store.Skipped, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
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

// sweepsAreDue wakes the sweeps of children that no join waits for, and of nodes to be skipped.
func (p *process) sweepsAreDue(rest, skips bool) {
	wake := func(due chan struct{}) {
		select {
		case due <- struct{}{}:
		default:
		}
	}
	if rest {
		wake(p.restDue)
	}
	if skips {
		wake(p.skipsDue)
	}
}

// sweeps sweeps whenever it is due, and lets others go ahead before. The pauses bound what the
// sweeps cost the server, and gather what becomes due meanwhile.
func (p *process) sweeps(due <-chan struct{}, behind time.Duration, sweep func(context.Context) error, what string) {
	for {
		select {
		case <-p.draining:
			return
		case <-due:
		}
		if !p.pause(behind) {
			return
		}
		began := p.since()
		if err := sweep(p.looking); err != nil {
			p.trouble(what, err)
		}
		if !p.pause(min(sweepPace*(p.since()-began), deadlinePoll)) {
			return
		}
	}
}
