package fsm

import (
	"fmt"
	"time"
)

// AttemptError is the error of one attempt of an instance: of a run that was retried, of a run
// whose process was lost, of runs that the engine cut off, or of the end of the instance. The
// engine keeps the newest 20, across visits and an operator's Retry, until it collects the
// instance. Progress clears LastError, but not these.
type AttemptError struct {
	At      time.Time   `json:"at"` // on the server's clock
	Step    string      `json:"step"`
	Visit   int64       `json:"visit"`
	Attempt int         `json:"attempt"` // of that visit, from 0
	Kind    AttemptKind `json:"kind"`
	Message string      `json:"message"` // at most 1,024 characters
	// Worker is the worker that was lost, or that cut the run off, by its name in hooks and logs; ""
	// unless AttemptCrashed or AttemptReleased.
	Worker string `json:"worker,omitempty"`
	// Times is how many runs in a row were cut off; At, Message and Worker belong to the newest; 0
	// unless AttemptReleased.
	Times int `json:"times,omitempty"`
}

// String returns the message, and how often in a row.
func (e AttemptError) String() string {
	if e.Times > 1 {
		return fmt.Sprintf("%s (%d times in a row)", e.Message, e.Times)
	}
	return e.Message
}

// AttemptKind says what followed from an attempt's error.
type AttemptKind string

// The kinds of attempts that have an error.
const (
	AttemptRetried   AttemptKind = "retry"    // the run was retried
	AttemptCrashed   AttemptKind = "crash"    // the run's process was lost; over the crash limit this ended the instance
	AttemptReleased  AttemptKind = "release"  // the engine cut the run off, by a drain or since it could not extend the lease; the attempt goes on
	AttemptFailed    AttemptKind = "fail"     // the instance ended: by Fail, by an error that is not retried, or out of attempts
	AttemptCancelled AttemptKind = "cancel"   // an operator's Cancel ended the instance
	AttemptOverdue   AttemptKind = "deadline" // the instance's deadline ended it
)
