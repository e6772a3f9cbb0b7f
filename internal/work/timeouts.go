package work

import (
	"context"
	"time"
)

// timeoutMost bounds one statement.
const timeoutMost = 1000

// timeOut wakes the instances whose await has timed out.
func (p *process) timeOut(ctx context.Context) (last time.Duration, err error) {
	round := -1
	return p.slices(ctx, func(ctx context.Context) (bool, error) {
		done, err := p.db.TimeOut(ctx, timeoutMost)
		if err != nil {
			return false, err
		}
		round++
		p.reportRefused("wake an instance whose await is over", done.Refused)
		p.Nudge(done.Queues...)
		return more(len(done.Queues), timeoutMost, len(done.Refused), round), nil
	})
}

// handOver gives kept signals to instances whose inserts have not taken them.
func (p *process) handOver(ctx context.Context) (last time.Duration, err error) {
	for after := ""; ; {
		last, err = p.slice(ctx, func(ctx context.Context) error {
			done, err := p.db.HandOver(ctx, after)
			p.reportRefused("hand signals over that were kept for a key", done.Refused)
			p.Nudge(done.Queues...)
			after = done.Last
			return err
		})
		if err != nil || after == "" || !p.room(sweepPace*last, maxPause) {
			return last, err
		}
	}
}
