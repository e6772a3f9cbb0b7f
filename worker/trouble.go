package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// quietFor is how long the same kind of trouble is not logged again: a database that is away fails thousands of statements.
const quietFor = 10 * time.Second

type quiet struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// first reports whether it is time to log something of this kind.
func (q *quiet) first(kind string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.last[kind]) < quietFor {
		return false
	}
	q.last[kind] = time.Now()
	return true
}

// trouble logs an error that will be retried, and tells the reaper when the connection was lost.
func (w *Worker) trouble(doing string, err error) {
	if w.isDraining() && store.Classify(err) == store.FaultCancelled || w.base.Err() != nil {
		return // our own doing
	}
	if store.LostConnection(err) {
		w.lostAt.Store(int64(w.since()))
	}
	fault := store.Classify(err)
	if !w.quiet.first(doing + fault.String()) {
		return
	}
	if fault == store.FaultConfig {
		w.log.Error("cannot "+doing+": is the schema current, and may this role use it? Nothing fails meanwhile; retrying", slog.Any("error", err))
		return
	}
	w.log.Warn("cannot "+doing+"; retrying", slog.Any("error", err), slog.String("fault", fault.String()))
}

// reportHolder names whoever keeps an outcome from being committed: a transaction that its owner has left open is seen by no deadlock
// detector, and by nobody who does not look (T9).
func (w *Worker) reportHolder(c *step.Claim, err error) {
	if !store.IsLockTimeout(err) || !w.quiet.first("holder") {
		return
	}
	ctx, cancel := context.WithTimeout(w.base, time.Second)
	defer cancel()
	for _, id := range []int64{c.ID, c.Parent} {
		if h, ok, err := w.db.Holder(ctx, store.Address{ID: id}); err == nil && ok {
			w.log.Error("an outcome cannot be committed: another session holds the row. Its transaction was left open?",
				slog.Int64("instance", c.ID), slog.Int64("held", id), slog.Int("pid", int(h.PID)), slog.String("state", h.State),
				slog.String("application", h.Application))
		}
	}
}

// reportAside logs machines that this process does not have registered. Their rows are set aside for processes that do: during a rolling
// deploy that is as it should be, else someone forgot to register a machine or to keep an old version (T74).
func (w *Worker) reportAside(queue string, machines []string) {
	if len(machines) == 0 {
		return
	}
	slices.Sort(machines)
	machines = slices.Compact(machines)
	names := strings.Join(machines, ", ")
	if w.quiet.first("aside " + queue + names) {
		w.log.Warn("set instances aside whose machine is not registered here; a process that has it will run them",
			slog.String("queue", queue), slog.String("machines", names))
	}
}
