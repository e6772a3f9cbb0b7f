package fsm

import "time"

// AttemptError is an error of one attempt of an instance: of a run that was retried, of one that lost its process, or whatever ended it. The
// newest 20 are kept, across visits and an operator's Retry, until the instance is collected; progress clears LastError, but not them.
type AttemptError struct {
	At      time.Time // on the server's clock
	Step    string
	Visit   int64
	Attempt int // of that visit; 0 is the first
	Kind    AttemptKind
	Message string // at most 1,024 characters
	Worker  string // that was lost, as hooks and logs name it; "" unless AttemptCrashed
}

// AttemptKind is what became of an attempt with an error.
type AttemptKind string

// The kinds.
const (
	AttemptRetried   AttemptKind = "retry"    // it was retried
	AttemptCrashed   AttemptKind = "crash"    // it lost its process; over the crash limit that ended the instance
	AttemptStopped   AttemptKind = "stop"     // it ended the instance: Stop, an error that is not retried, or out of attempts
	AttemptCancelled AttemptKind = "cancel"   // an operator's Cancel ended the instance
	AttemptOverdue   AttemptKind = "deadline" // its deadline ended the instance
)
