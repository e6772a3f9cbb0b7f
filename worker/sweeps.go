package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/store"
)

const (
	reapMost       = 200
	pruneEvery     = time.Minute
	pruneSoon      = 5 * time.Second // after a sweep that was full: many small ones disturb less than a large one
	pruneMost      = 1000
	tombstonesKept = 10_000 // per instance (spec §4)
	sweepSlice     = 1000   // partition keys of one statement
	sweepSlices    = 10     // of one sweep
)

// reaper sweeps expired leases. Every process may; rows someone else is at are skipped.
func (w *Worker) reaper() {
	var limits store.CrashLimits
	for key, m := range w.machines {
		limits.Machines = append(limits.Machines, store.MachineID(key.name, key.version))
		limits.Limits = append(limits.Limits, int32(min(m.CrashLimit, 1<<30))) //nolint:gosec // bounded here
	}
	refused := false
	for w.pause(jittered(w.c.Reap)) {
		if err := w.reap(limits, &refused); err != nil {
			w.trouble("reap", err)
		}
	}
}

// reap is one sweep. refused: the last attempt to reap failed, though the server answers.
func (w *Worker) reap(limits store.CrashLimits, refused *bool) error {
	ctx, cancel := context.WithTimeout(w.looking, statementTimeout)
	defer cancel()
	// After an outage every lease has expired, held or not: those who still hold theirs beat first (T20).
	holdOff := 2 * w.c.Heartbeat
	up, err := w.db.Uptime(ctx)
	if err != nil {
		return err
	}
	if up < holdOff || w.since()-time.Duration(w.lostAt.Load()) < holdOff {
		return nil
	}
	if *refused {
		// A server that was read-only may take writes again from this very moment on: ask it by reaping nothing, and hold off from here.
		if _, err := w.db.Reap(ctx, uuid.NewString(), limits, 0); err != nil {
			return err
		}
		*refused = false
		w.lostAt.Store(int64(w.since()))
		return nil
	}
	for {
		r, err := w.db.Reap(ctx, uuid.NewString(), limits, reapMost)
		if err != nil {
			*refused = true
			return err
		}
		if r.Released+len(r.Failed) > 0 {
			w.log.Warn("reaped claims whose lease had expired", slog.Int("released", r.Released), slog.Int("failed", len(r.Failed)))
		}
		for _, id := range r.Poisoned {
			w.log.Error("Postgres refuses to reap a row: it stays executing until it is repaired by hand", slog.Int64("instance", id))
		}
		w.Nudge(r.Queues...)
		w.promotions.add(r.Missed)
		w.ended(r.Failed)
		for _, tell := range w.hooks.reap {
			w.survive(func() { tell(w.base, r.Released, len(r.Failed)) })
		}
		if r.Released+len(r.Failed) < reapMost {
			return nil
		}
	}
}

// pruner deletes terminal instances past their retention.
func (w *Worker) pruner() {
	p := store.PruneParams{Done: w.c.RetainDone, Failed: w.c.RetainFailed, Tombstones: tombstonesKept, Limit: pruneMost}
	for wait := pruneEvery; w.pause(jittered(wait)); {
		wait = pruneEvery
		done, err := w.db.Prune(w.looking, p)
		if done.Instances >= pruneMost {
			wait = pruneSoon
		}
		if err != nil {
			w.trouble("prune", err)
			continue
		}
		if len(done.Refused) > 0 {
			w.log.Warn("Postgres refuses to delete instances past their retention: does a table of yours refer to them?",
				slog.Any("refused", done.Refused))
		}
		if done.Instances > 0 {
			for _, tell := range w.hooks.prune {
				w.survive(func() { tell(w.base, done.Instances) })
			}
		}
	}
}

// sweeper looks through partition keys for one that stands still, a few thousand at a time. It is a safety net for crashes and foreign SQL.
func (w *Worker) sweeper() {
	after := ""
	for w.pause(jittered(w.c.Reap)) {
		for range sweepSlices {
			last, p, err := w.db.Sweep(w.looking, after, sweepSlice)
			if err != nil {
				w.trouble("sweep partition keys", err)
				break
			}
			w.Nudge(p.Queues...)
			w.promotions.add(p.Missed)
			if after = last; after == "" {
				break
			}
		}
	}
}

// promotions are partition keys whose next row someone had locked when it should have come forward: without another try the key would
// stand still until the sweep.
type promotions struct {
	w     *Worker
	mu    sync.Mutex
	tries map[string]int
	wake  chan struct{}
}

func newPromotions(w *Worker) *promotions {
	return &promotions{w: w, tries: map[string]int{}, wake: make(chan struct{}, 1)}
}

func (p *promotions) add(keys []string) {
	if len(keys) == 0 {
		return
	}
	p.mu.Lock()
	for _, k := range keys {
		if _, ok := p.tries[k]; !ok {
			p.tries[k] = 0
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *promotions) run() {
	for {
		select {
		case <-p.w.draining:
			return
		case <-p.wake:
		}
		for n := 1; ; n++ {
			if !p.w.pause(backoff(n, 2*time.Millisecond, 100*time.Millisecond)) {
				return
			}
			if !p.again() {
				break
			}
		}
	}
}

// again tries all keys once, and reports whether some are left.
func (p *promotions) again() bool {
	p.mu.Lock()
	keys := make([]string, 0, len(p.tries))
	for k := range p.tries {
		keys = append(keys, k)
	}
	clear(p.tries)
	p.mu.Unlock()
	if len(keys) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(p.w.looking, statementTimeout)
	defer cancel()
	done, err := p.w.db.Promote(ctx, keys)
	if err != nil {
		p.w.trouble("promote partition keys", err)
		p.add(keys)
		return true
	}
	p.w.Nudge(done.Queues...)
	p.add(done.Missed)
	return len(done.Missed) > 0
}
