package work

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gendurable/gendurable/worker"
)

// Activity returns what the process is doing. It does not query the database or hold a contended
// lock for long.
func (w *Worker) Activity() worker.Activity {
	a := worker.Activity{InFlight: w.flights.number(), LastPoll: w.deeds.poll.time(w.process), LastHeartbeat: w.deeds.heartbeat.time(w.process),
		LastCommit: w.deeds.commit.time(w.process), Failing: w.failing()}
	for name, q := range w.queues {
		a.Queues = append(a.Queues, worker.QueueActivity{
			Name: name, Running: int(q.shown.running.Load()), Buffered: int(q.shown.buffered.Load()), Waiting: int(q.shown.waiting.Load()),
			Collected: int(q.shown.collected.Load()), Committing: int(q.shown.committing.Load()), Held: int(q.shown.held.Load()),
			Slots: q.conf.Concurrency, Idle: q.idle.Load(), Paused: q.paused.Load(),
		})
	}
	slices.SortFunc(a.Queues, func(a, b worker.QueueActivity) int { return strings.Compare(a.Name, b.Name) })
	return a
}

// shown holds the counts of a queue that others may read: the counts of its scheduler, as of its
// last turn, and the numbers of flights that have left their slots.
type shown struct{ running, buffered, waiting, collected, committing, held atomic.Int64 }

func (s *scheduler) show() {
	s.shown.running.Store(int64(s.running))
	s.shown.buffered.Store(int64(len(s.buffer)))
	s.shown.waiting.Store(int64(s.parked))
	s.shown.collected.Store(int64(s.collector.flights))
}
