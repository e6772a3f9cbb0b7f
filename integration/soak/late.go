package soak

import (
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/steady"
)

// ErrStoodStill says that the soak was late, and the machine is to blame: the run shows nothing.
// Nothing else was wrong.
var ErrStoodStill = errors.New("the machine stood still, or was too busy: the run shows nothing")

// StoodStill is the exit code of a program whose soak ended by [ErrStoodStill].
const StoodStill = 75

// lateError says that something did not happen in time. All other errors count on every machine.
type lateError struct{ error }

func late(format string, arguments ...any) error {
	return lateError{fmt.Errorf(format, arguments...)}
}

// excused adds ErrStoodStill to errors of which all are about time, if the soak's own process stood
// still for longer than a heartbeat, or ran for less than half of the time.
func excused(err error, w *steady.Watchdog, took time.Duration) error {
	if !onlyLate(err) || w.Stood() <= heartbeat && w.Ran() >= took/2 {
		return err
	}
	return fmt.Errorf("%w: for %v at once, and it ran for %v of %v: %w", ErrStoodStill, w.Stood().Round(time.Millisecond),
		w.Ran().Round(time.Second), took.Round(time.Second), err)
}

// onlyLate reports whether there is an error, and all that it consists of is about time.
func onlyLate(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it looks at each layer
	case nil:
		return false
	case lateError:
		return true
	case interface{ Unwrap() error }:
		return onlyLate(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if !onlyLate(part) {
				return false
			}
		}
		return true
	}
	return false
}
