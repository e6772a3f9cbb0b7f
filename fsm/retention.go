package fsm

import (
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// RetainNone keeps an instance not at all, in a field of a [Retention].
const RetainNone = step.RetainNone

// Retention says how long an instance is kept after its end, by how it ends. A zero field is what
// engine.Config says of all instances: RetainDone, RetainFailed, RetainCancelled. Otherwise it is
// at most 100 years, or [RetainNone].
//
// With RetainNone in Done, the row goes in the transaction of its Done, and with it all that could
// be read of it: Wait and Get return ErrNotFound. That is for instances by the million whose
// result is never read. Their history, if the machine has one, stays. Some are kept until the next
// sweep of the GC: children, until their parents have gone; instances that have had children;
// those that [engine.InTx] ends; those that a row of the host's refers to; all, where
// engine.Config.Archive is to get them. A key whose [Scope] outlives Done does not go with it, so
// such a spec is refused.
//
// A child is kept for its parent in any case: as long as the parent is.
//
// Where the answer to the COMMIT of such a Done is lost, and it took effect, nothing is left that
// says so. Its worker then reports the outcome by the hook Stale instead of Step, and logs a
// warning. The step does not run again, since there is no instance; a caller of Wait gets
// ErrNotFound, as ever; the history has the Done, if the machine has one.
//
// [engine.InTx]: https://pkg.go.dev/github.com/gendurable/gendurable/engine#InTx
type Retention struct {
	Done      time.Duration `json:"done_ns,omitempty"`
	Failed    time.Duration `json:"failed_ns,omitempty"`
	Cancelled time.Duration `json:"cancelled_ns,omitempty"` // zero: as Failed, if that is set
}

// Retain sets how long new instances are kept after their end, unless their [Spec] sets another.
// Each keeps what it was inserted with.
func Retain(r Retention) DeclareOption { return func(d *declaration) { d.retain = r } }

// Retain sets how long the instance is kept after its end, in place of what the machine declares
// (see the function [Retain]) and of engine.Config.
func (s Spec) Retain(r Retention) Spec {
	s.o.Retain = r
	return s
}

func (r Retention) erase() step.Retain {
	return step.Retain{Done: r.Done, Failed: r.Failed, Cancelled: r.Cancelled}
}

// fault returns what is wrong, and the name of the field.
func (r Retention) fault() (field string, err error) {
	for _, d := range []struct {
		name string
		time.Duration
	}{{"done", r.Done}, {"failed", r.Failed}, {"cancelled", r.Cancelled}} {
		if d.Duration == RetainNone {
			continue
		}
		if d.Duration < 0 {
			return d.name, fmt.Errorf("%v is negative; RetainNone is not at all", d.Duration)
		}
		if err := checkDelay(d.Duration); err != nil {
			return d.name, err
		}
	}
	return "", nil
}

// checkRetention refuses a retention that the spec's key contradicts.
func (s Spec) checkRetention() (field string, err error) {
	if field, err := s.o.Retain.fault(); err != nil {
		return "retain." + field, err
	}
	if s.o.Retain.Done == RetainNone && s.hasKey && s.o.Scope.outlivesDone() {
		return "retain.done", errKeyWithoutRow
	}
	return "", nil
}

var errKeyWithoutRow = errors.New("RetainNone, though the scope keeps the key when the instance is done")

// outlivesDone reports whether an instance that is done occupies its key.
func (c Scope) outlivesDone() bool { return c == ScopeLiveOrDone || c == ScopeAll }
