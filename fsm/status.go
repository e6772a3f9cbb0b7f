package fsm

// Status is the status of an instance: the column status of gen_durable, in the order of the
// Postgres enum (spec §2).
type Status string

// The six statuses.
const (
	StatusRunnable         Status = "runnable"          // waits for a worker, or for its time
	StatusExecuting        Status = "executing"         // claimed, under a lease
	StatusAwaitingSignal   Status = "awaiting_signal"   // parked until a signal arrives or the await times out
	StatusAwaitingChildren Status = "awaiting_children" // parked until its children are terminal, or those that its join waits for
	StatusDone             Status = "done"              // terminal
	StatusFailed           Status = "failed"            // terminal; Failure says why
)

// Statuses returns all statuses in the order of the Postgres enum.
func Statuses() []Status {
	return []Status{StatusRunnable, StatusExecuting, StatusAwaitingSignal, StatusAwaitingChildren, StatusDone, StatusFailed}
}

// Terminal reports whether an instance in this status has ended.
func (s Status) Terminal() bool { return s == StatusDone || s == StatusFailed }

// Values returns the texts of all statuses; it makes Status an enum for ent.
func (Status) Values() []string {
	var out []string
	for _, s := range Statuses() {
		out = append(out, string(s))
	}
	return out
}

// Failure says why an instance failed: the column failure of gen_durable, "" unless failed (spec
// §2).
type Failure string

// The kinds of failure.
const (
	FailureDecided   Failure = "decided"   // a step or its handler returned Fail
	FailureError     Failure = "error"     // a step's error without a handler or retries, a [Permanent] error, or a handler that failed too
	FailureExhausted Failure = "exhausted" // the attempts were used up
	FailureCrashes   Failure = "crashes"   // it lost its process more often than the machine's crash limit
	FailureCancelled Failure = "cancelled" // an operator cancelled it
	FailureDeadline  Failure = "deadline"  // its deadline passed
	FailureSkipped   Failure = "skipped"   // a node of a graph whose edges are not met, or whose graph is over: its steps never ran
)
