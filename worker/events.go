package worker

import (
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// StepEvent says that a step ran.
type StepEvent struct {
	Instance fsm.Info
	Outcome  fsm.OutcomeKind // fsm.OutcomeNone if the claim was given back
	Failure  fsm.Failure     // why the instance failed, if Outcome is fsm.OutcomeFail; otherwise ""
	Took     time.Duration   // duration of the step alone, without its handler and its commit
	Err      error           // why the handler was called; nil if it was not
	// CutOff is why the engine ended a run that had begun, before it had an outcome: fsm.ErrLeaseLost,
	// fsm.ErrDraining or fsm.ErrCancelled. Nil: it did not. The step runs again, unless the instance
	// was cancelled.
	CutOff error
}

// PickEvent says that a claim was answered.
type PickEvent struct {
	Queue  string
	Wanted int           // rows that were asked for
	Got    int           // rows that came
	Took   time.Duration // from the request to the answer
	Err    error         // nil if the claim succeeded; otherwise the worker repeats it
	// Inserted: they were claimed by the very insert. Wanted is how many it was for, and Took its
	// time.
	Inserted bool
	// Signalled: the very signal that woke the instance claimed it. Took is the signal's time.
	Signalled bool
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

// BatchEvent says that the call of a batch step has ended.
type BatchEvent struct {
	Machine string
	Version int
	Step    string
	Queue   string
	Size    int           // instances that the call was for
	Most    int           // instances that it could have been for: fewer than the step says after a failure
	Failed  int           // instances whose step failed: their handlers are called
	Waited  time.Duration // from when the first instance was claimed until there was a slot for all
	Took    time.Duration // duration of the call
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

// CancelEvent says that an operator's verb on this engine cancelled instances.
type CancelEvent struct {
	Cancelled int // includes descendants
}

// ZombieEvent says that a step still runs 10 s after its context has ended: it ignores its context.
// Its slot stays taken until it returns. Each step is reported once.
type ZombieEvent struct {
	Instance fsm.Info // as it was claimed
	Cause    error    // why the context ended
}

// StaleEvent says that an outcome came too late and changed nothing.
type StaleEvent struct {
	Instance fsm.Info
}

// DrainEvent says that Stop has finished.
type DrainEvent struct {
	Released  int // claims that were given back unstarted
	Abandoned int // steps that were still running: their instances run again when the leases expire
}

// PruneEvent says that instances past their retention were deleted.
type PruneEvent struct {
	Deleted int
	Unread  int // signals that nobody had consumed, deleted with instances that had failed
	Expired int // kept signals whose keys nobody occupied in time
}

// UnreadEvent says that signals were deleted that no step had consumed, since their instance is
// done. They were accepted before, so a sender may count on them: [fsm.EndOutcome.Unless] keeps an
// instance from ending beside such a signal. The event of a commit whose answer is lost is missing.
type UnreadEvent struct {
	Instance fsm.Info
	Signals  map[string]int // how many, by name
}

// FireEvent says that a schedule was advanced.
type FireEvent struct {
	Schedule string
	Inserted int           // occurrences that were inserted
	Missed   int           // occurrences that the catch-up policy dropped, or a lower bound
	Skipped  int           // occurrences that the overlap policy dropped
	Late     time.Duration // from the time of the newest inserted occurrence to its insertion
}
