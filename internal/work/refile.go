package work

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// refileMost is at how many instances in line one statement looks.
	refileMost = 1000
	// refilePace × the duration of such a statement is the pause before the next one.
	refilePace = 4
	// refileRetry is the pause after one that failed.
	refileRetry = time.Second
)

// refileAfter says when, after gates have changed, a process goes through the lines: at once, when
// no process inserts by the gates of before any more, and for transactions of hosts that were open
// meanwhile.
var refileAfter = [...]time.Duration{0, store.RefileLate, 2 * time.Minute}

// refiler brings instances that wait in line at a gate, and are behind another one by now, to the
// right line. It begins when the poller learns of gates that concern others than before, and goes
// through all lines as often as refileAfter says. Without such news, it sends nothing.
type refiler struct{ *process }

func (r *refiler) run() {
	for {
		select {
		case <-r.draining:
			return
		case <-r.gates.regroup:
		}
		r.passes()
	}
}

// passes goes through the lines after each of refileAfter, counted from the last news.
func (r *refiler) passes() {
	began := r.since()
	for n := 0; n < len(refileAfter); {
		wait := refileAfter[n] - (r.since() - began)
		if n > 0 {
			wait = pace.Jittered(wait)
		}
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-r.draining:
				t.Stop()
				return
			case <-r.gates.regroup:
				t.Stop()
				began, n = r.since(), 0
				continue
			case <-t.C:
			}
		}
		if err := r.refile(r.looking, r.pause); err != nil {
			r.trouble("file instances in line anew", err)
			if !r.pause(pace.Jittered(refileRetry)) {
				return
			}
			continue
		}
		n++
	}
}

// refile goes through all lines once. pause waits between statements, and returns false to end it.
func (p *process) refile(ctx context.Context, pause func(time.Duration) bool) error {
	var at store.Filed
	for more := true; more; {
		took, err := p.slice(ctx, func(ctx context.Context) error {
			queues, some, err := p.db.Refile(ctx, &at, refileMost)
			p.Nudge(queues...)
			more = some
			return err
		})
		if err != nil {
			return err
		}
		if more && pause != nil && !pause(refilePace*took) {
			return nil
		}
	}
	return nil
}
