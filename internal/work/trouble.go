package work

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

// quietFor is how long the worker does not log the same kind of trouble again: while a database is
// away, thousands of statements fail.
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

// trouble logs an error that will be retried. It tells the reaper if the database takes no writes.
func (p *process) trouble(doing string, err error) {
	if p.isDraining() && store.Classify(err) == store.FaultCancelled || p.base.Err() != nil {
		return // caused by our own cancellation
	}
	if store.IsReadOnly(err) {
		p.unheard()
	}
	fault := store.Classify(err)
	if !p.quiet.first(doing + fault.String()) {
		return
	}
	if fault == store.FaultConfig {
		p.log.Error("cannot "+doing+": is the schema current, and may this role use it? Nothing fails meanwhile; retrying", slog.Any("error", err))
		return
	}
	p.log.Warn("cannot "+doing+"; retrying", slog.Any("error", err), slog.String("fault", fault.String()))
}

// reportRefused logs rows that Postgres refuses to change. They stay unchanged, and are tried again
// later. No other row waits for them.
func (p *process) reportRefused(doing string, rows []store.Refused) {
	const most = 10 // rows in one line
	if len(rows) == 0 || !p.quiet.first("refused "+doing) {
		return
	}
	var which []any
	for _, r := range rows[:min(most, len(rows))] {
		if r.Key != "" {
			which = append(which, r.Key)
		} else {
			which = append(which, r.ID)
		}
	}
	p.log.Error("Postgres refuses to "+doing+": it is tried again later, until it is repaired by hand; nothing else waits for it",
		slog.Int("instances", len(rows)), slog.Any("refused", which), slog.Any("error", rows[0].Err))
}

// reportHolder logs who keeps an outcome from being committed. No deadlock detector notices a
// transaction that its owner has left open (T9).
func (p *process) reportHolder(c *step.Claim, err error) {
	if !store.IsLockTimeout(err) || !p.quiet.first("holder") {
		return
	}
	ctx, cancel := context.WithTimeout(p.base, time.Second)
	defer cancel()
	for _, id := range []int64{c.ID, c.Parent} {
		if h, ok := store.HeldBy(ctx, p.db, store.Address{ID: id}, err); ok {
			p.log.Error("an outcome cannot be committed: another session holds the row. Its transaction was left open?",
				slog.Int64("instance", c.ID), slog.Int64("held", id), h.Attr())
		}
	}
}

// reportAside logs machines that this process has not registered. Their rows are set aside for
// processes that have. During a rolling deploy that is normal. Otherwise a deploy forgot to
// register a machine or to keep an old version (T74).
func (p *process) reportAside(queue string, machines []string) {
	if len(machines) == 0 {
		return
	}
	slices.Sort(machines)
	machines = slices.Compact(machines)
	names := strings.Join(machines, ", ")
	if p.quiet.first("aside " + queue + names) {
		p.log.Warn("set instances aside whose machine is not registered here; a process that has it will run them",
			slog.String("queue", queue), slog.String("machines", names))
	}
}
