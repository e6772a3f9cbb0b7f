package fsm

import (
	"errors"
	"time"
)

// MaxThrottle is the longest time for which [Throttled] closes a gate: a provider may send any
// number.
const MaxThrottle = time.Hour

type throttledError struct {
	error
	after time.Duration
}

func (e *throttledError) Unwrap() error { return e.error }

// Throttled wraps err to say that a provider wants fewer calls, as by status 429, and will take
// more after a time, as by its header Retry-After. The step then runs again, after that time at the
// earliest and without a counted attempt, and no handler is called: only the instance's deadline
// bounds how often. The text of err becomes the instance's last error.
//
// If the step is behind a gate (engine.Gate), its key is closed for the same time in all processes,
// so that the others behind it do not find out one by one. They lose no attempt, since they do not
// run. If the provider does not say when, the time is 0: a gate with Adapt then halves the pace of
// the key, another one closes it for a second, and the step runs again after a second.
//
// A negative time counts as 0, and one over [MaxThrottle] as that. The text is err's; nil stays
// nil. If one chain has several, the outermost counts. [Permanent] outranks it, and it outranks
// [RetryAfter]. In an error that a handler returns it has no effect.
func Throttled(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &throttledError{err, min(max(after, 0), MaxThrottle)}
}

// throttledFor returns the time of an error of [Throttled]. ok is false for any other error.
func throttledFor(err error) (after time.Duration, ok bool) {
	t, ok := errors.AsType[*throttledError](err)
	if _, permanent := errors.AsType[*permanentError](err); !ok || permanent {
		return 0, false
	}
	return t.after, true
}
