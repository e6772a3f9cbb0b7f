package worker

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Activity describes what this process is doing, as far as it knows without asking the database.
// Hosts know it as engine.Activity.
type Activity struct {
	// InFlight counts the claims of this process: buffered, waiting for their key, running or
	// committing. The heartbeat extends the leases of all of them.
	InFlight int `json:"in_flight"`
	// LastPoll is when a poll last succeeded, which a worker attempts every second. It is zero before
	// the first.
	LastPoll time.Time `json:"last_poll,omitzero"`
	// LastHeartbeat is when a heartbeat last wrote: it extended a lease, or the report of this worker.
	// It is zero before the first.
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	// LastCommit is when outcomes were last committed. It is zero before the first.
	LastCommit time.Time `json:"last_commit,omitzero"`
	// Failing lists what has not succeeded since it failed. A single failure is nothing to worry
	// about: everything is tried again.
	Failing []Failing `json:"failing,omitempty"`
	// Queues lists the queues of this process by name.
	Queues []QueueActivity `json:"queues,omitempty"`
}

// QueueActivity counts the claims of one queue in this process.
type QueueActivity struct {
	Name string `json:"name"`
	// Running are in a slot: their code runs, or their outcomes are many or large enough to be waited
	// for.
	Running   int `json:"running"`
	Buffered  int `json:"buffered"`  // waiting for a slot
	Waiting   int `json:"waiting"`   // waiting for the lock of their partition key
	Collected int `json:"collected"` // waiting for others of their batch step, or for a slot with them
	// Committing are out of their slot, until their outcome is durable. Nothing that follows from it
	// begins before.
	Committing int  `json:"committing"`
	Held       int  `json:"held"` // out of their slot, since somebody has locked the row that their outcome is for
	Slots      int  `json:"slots"`
	Idle       bool `json:"idle"`   // the last look found nothing to claim
	Paused     bool `json:"paused"` // an operator has paused it; also true until the first poll
}

// Activity returns what the process is doing. It does not query the database or hold a contended
// lock for long.
func (w *Worker) Activity() Activity {
	a := Activity{InFlight: w.flights.number(), LastPoll: w.deeds.poll.time(w.process), LastHeartbeat: w.deeds.heartbeat.time(w.process),
		LastCommit: w.deeds.commit.time(w.process), Failing: w.failing()}
	for name, q := range w.queues {
		a.Queues = append(a.Queues, QueueActivity{
			Name: name, Running: int(q.shown.running.Load()), Buffered: int(q.shown.buffered.Load()), Waiting: int(q.shown.waiting.Load()),
			Collected: int(q.shown.collected.Load()), Committing: int(q.shown.committing.Load()), Held: int(q.shown.held.Load()),
			Slots: q.conf.Concurrency, Idle: q.idle.Load(), Paused: q.paused.Load(),
		})
	}
	slices.SortFunc(a.Queues, func(a, b QueueActivity) int { return strings.Compare(a.Name, b.Name) })
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
