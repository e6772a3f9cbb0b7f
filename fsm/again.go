package fsm

import (
	"errors"
	"fmt"
	"time"
)

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("to be run again after %v", e.delay) }

// Again returns an error that asks for another run after d, and not to count this one: it is
// [Visit.Again] for a job, for a middleware that does not let a step run, and for the function of a
// step's own transaction, which is undone. The machine's handler is not called, no error is noted,
// and attempt, crashes, state, visit and idempotency keys stay. A negative d, of a moment that has
// passed, is 0, and the most is [MaxDelay]. Again counts wherever it is in the chain of an error.
func Again(d time.Duration) error { return &snoozeError{min(max(0, d), MaxDelay)} }

// snoozed returns the delay that an error of [Again] asks for. ok is false for any other error.
func snoozed(err error) (delay time.Duration, ok bool) {
	s, ok := errors.AsType[*snoozeError](err)
	if !ok {
		return 0, false
	}
	return s.delay, true
}
