package fsm

import (
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/internal/step"
)

// The causes with which the engine cancels the context of a step; context.Cause returns them. After
// ErrDraining, ErrLeaseLost and ErrCancelled the engine ignores the error that the step returns: it
// gives the claim back, or the claim belongs to another worker already, or the instance has ended
// (spec §3).
var (
	// ErrDraining is the cause when the engine stops and the step has not ended in time.
	ErrDraining = errors.New("gendurable: engine stopping")
	// ErrLeaseLost is the cause when the claim's lease ran out, or another worker has the claim.
	ErrLeaseLost = errors.New("gendurable: lease lost")
	// ErrCancelled is the cause when an operator cancelled the instance.
	ErrCancelled = errors.New("gendurable: instance cancelled")
	// ErrStepTimeout is the cause when the step's Timeout has passed. The handler gets its error.
	ErrStepTimeout = errors.New("gendurable: step timeout")
	// ErrDeadline is the cause when the instance's deadline has passed. An error of the step, or a
	// Retry, then fails the instance with [FailureDeadline]; any other outcome is committed as it is.
	ErrDeadline = errors.New("gendurable: instance over its deadline")
)

var (
	// ErrTooLarge is wrapped in the error for an encoded state, result or payload that is over the
	// engine's limit.
	ErrTooLarge = step.ErrTooLarge
	// ErrNotTerminal is returned when the result of an instance is read that has not ended.
	ErrNotTerminal = errors.New("gendurable: instance has not ended")
	// ErrGoexit is the Value of a [PanicError] when the step called runtime.Goexit.
	ErrGoexit = errors.New("gendurable: step called runtime.Goexit")
)

// DefinitionError is a fault of a machine's declaration or definition. engine.New returns all of
// them; an insert returns the declaration's.
type DefinitionError struct {
	Machine string // as declared
	Version int
	Field   string // e.g. "name" or `steps["ship"].to`
	Err     error  // the fault, with the bound
}

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("machine %.80q version %d: %s: %v", e.Machine, e.Version, e.Field, e.Err)
}

// Unwrap returns the fault.
func (e *DefinitionError) Unwrap() error { return e.Err }

// OutcomeError is the fault of an outcome that cannot be committed. The machine's handler gets it
// as an error of the step.
type OutcomeError struct {
	Field string // e.g. "state", "delay" or "children[3].key"
	Err   error
}

func (e *OutcomeError) Error() string {
	if e.Field == "outcome" {
		return fmt.Sprintf("outcome: %v", e.Err)
	}
	return fmt.Sprintf("outcome: %s: %v", e.Field, e.Err)
}

// Unwrap returns the fault.
func (e *OutcomeError) Unwrap() error { return e.Err }

// SpecError is the fault of a [Spec] that cannot be inserted.
type SpecError struct {
	Field string // "machine", "step", "queue", "priority", "key", "scope", "partition_key", "delay", "at" or "state"
	Err   error
}

func (e *SpecError) Error() string { return fmt.Sprintf("spec: %s: %v", e.Field, e.Err) }

// Unwrap returns the fault.
func (e *SpecError) Unwrap() error { return e.Err }

// MessageError is the fault of a [Message] that cannot be sent.
type MessageError struct {
	Field string // "name", "dedup_key" or "payload"
	Err   error
}

func (e *MessageError) Error() string { return fmt.Sprintf("signal: %s: %v", e.Field, e.Err) }

// Unwrap returns the fault.
func (e *MessageError) Unwrap() error { return e.Err }

// DecodeError is returned when a stored value does not decode into the requested type.
type DecodeError struct {
	Field string // "state", "result", or the payload or child that it is
	Err   error
}

func (e *DecodeError) Error() string { return fmt.Sprintf("decode %s: %v", e.Field, e.Err) }

// Unwrap returns the fault.
func (e *DecodeError) Unwrap() error { return e.Err }

// PanicError is the error that the handler gets for a step that panicked or called runtime.Goexit.
type PanicError struct {
	Value any    // the panic's value; ErrGoexit after runtime.Goexit
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if that is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// FailedError is returned by [Machine.Wait] and [Child.Result] for an instance that failed.
type FailedError struct {
	ID      ID
	Machine string
	Failure Failure
	Message string // the instance's last_error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("instance %d of machine %q failed (%s): %s", e.ID, e.Machine, e.Failure, e.Message)
}

// MachineError is returned by typed reads of an instance that belongs to another machine.
type MachineError struct {
	ID        ID
	Want, Got string // names of machines
}

func (e *MachineError) Error() string {
	return fmt.Sprintf("instance %d is of machine %q, not %q", e.ID, e.Got, e.Want)
}
