package worker

import (
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// StepEvent says that a step ran.
type StepEvent struct {
	Instance fsm.Info
	Outcome  fsm.OutcomeKind // fsm.OutcomeNone where the claim was given back
	Failure  fsm.Failure     // why the instance failed, where Outcome is fsm.OutcomeStop; else ""
	Took     time.Duration   // the step alone, without its handler and its commit
	Err      error           // why the handler was called; nil where it was not
}

// PickEvent says that a claim was answered.
type PickEvent struct {
	Queue  string
	Wanted int           // rows that were asked for
	Got    int           // rows that came
	Took   time.Duration // from the request to the answer
	Err    error         // nil where the claim succeeded; else it is repeated
}

// SaturationEvent says how busy the slots of a queue are in this process, after a pick.
type SaturationEvent struct {
	Queue    string
	Running  int // slots in use
	Buffered int // claims that wait for a slot
	Slots    int // Queue.Concurrency
}

// ContendedEvent says that claims wait for their partition key, which another process still holds.
type ContendedEvent struct {
	Claims int
}

// CommitEvent says that a batch of outcomes was committed.
type CommitEvent struct {
	Outcomes int
	Took     time.Duration
}

// ReapEvent says that expired leases were swept.
type ReapEvent struct {
	Released int // instances that run again
	Failed   int // instances that were over their crash limit
}

// ExpireEvent says that a sweep failed instances over their deadline.
type ExpireEvent struct {
	Failed int
}

// CancelEvent says that an operator's verb of this engine cancelled instances.
type CancelEvent struct {
	Cancelled int // descendants among them
}

// ZombieEvent says that a step still runs 10 s after its context has ended: it ignores its context.
// Its slot stays taken until it returns. Each step is reported once.
type ZombieEvent struct {
	Instance fsm.Info // as it was claimed
	Cause    error    // of the context's end
}

// StaleEvent says that an outcome came too late and changed nothing.
type StaleEvent struct {
	Instance fsm.Info
}

// DrainEvent says that a stop has ended.
type DrainEvent struct {
	Released  int // claims that were given back unstarted
	Abandoned int // steps that were still running: their instances run again when the leases expire
}

// PruneEvent says that instances past their retention were deleted.
type PruneEvent struct {
	Deleted int
}

// FireEvent says that a schedule has moved on.
type FireEvent struct {
	Schedule string
	Inserted int           // occurrences that were inserted
	Missed   int           // occurrences that the catch-up policy dropped, at least
	Skipped  int           // occurrences that the overlap policy dropped
	Late     time.Duration // from the time of the newest inserted occurrence to its insertion
}
