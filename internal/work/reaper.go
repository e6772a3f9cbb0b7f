package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// reapMost bounds one statement.
const reapMost = 200

// reaper sweeps expired leases. Every process may do so at the same time, since a sweep skips
// locked rows.
type reaper struct {
	*process
	promotions *promotions
	limits     store.CrashLimits
	refused    bool // the last attempt to reap failed, although the server answers
}

func newReaper(p *process, promotions *promotions) *reaper {
	r := &reaper{process: p, promotions: promotions}
	for _, m := range p.config.Machines {
		r.limits.Machines = append(r.limits.Machines, store.MachineID(m.Name, m.Version))
		r.limits.Limits = append(r.limits.Limits, int32(min(m.CrashLimit, 1<<30))) //nolint:gosec // bounded here
	}
	return r
}

func (r *reaper) run() {
	for r.pause(pace.Jittered(r.config.Reap)) {
		if err := r.reap(); err != nil {
			r.trouble("reap", err)
		}
	}
}

// reap runs one sweep.
func (r *reaper) reap() error {
	var up time.Duration
	_, err := r.slice(r.looking, func(ctx context.Context) (err error) {
		up, err = r.db.Uptime(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.heard()
	if r.holdsOff(up) {
		return nil
	}
	if r.refused {
		// A server that was read-only may take writes again from this very moment on. Find out by reaping
		// nothing, and hold off from here.
		if _, err := r.slice(r.looking, func(ctx context.Context) error {
			_, err := r.db.Reap(ctx, uuid.NewString(), r.limits, 0)
			return err
		}); err != nil {
			return err
		}
		r.refused = false
		r.unheard()
		return nil
	}
	round := -1
	_, err = r.slices(r.looking, func(ctx context.Context) (bool, error) {
		done, err := r.db.Reap(ctx, uuid.NewString(), r.limits, reapMost)
		if err != nil {
			r.refused = true
			return false, err
		}
		round++
		if done.Released+len(done.Failed) > 0 {
			r.log.Warn("reaped claims whose lease had expired", slog.Int("released", done.Released), slog.Int("failed", len(done.Failed)))
		}
		r.reportRefused("reap an instance", done.Refused)
		r.Nudge(done.Queues...)
		r.sweepsAreDue(done.Rest, done.Skips)
		r.promotions.add(done.Missed)
		r.ended(done.Failed)
		if done.Released+len(done.Failed) > 0 {
			r.lookSoon()
		}
		tell(r.base, r.process, r.hooks.reap, worker.ReapEvent{Released: done.Released, Failed: len(done.Failed)})
		if r.holdsOff(up) {
			return false, nil // an outage has begun between two slices
		}
		return more(done.Released+len(done.Failed), reapMost, len(done.Refused), round), nil
	})
	return err
}

// holdsOff reports whether it is too early to reap. After an outage every lease has expired,
// whether its worker lives or not, so workers that still have their claims must beat first (T20).
// It is also too early while this process itself gets no beats through, since others may not
// either.
func (r *reaper) holdsOff(up time.Duration) bool {
	long := 2 * r.config.Heartbeat
	beaten := r.since() - time.Duration(r.beaten.Load())
	return up < long || r.reached() < long || beaten >= long
}
