package fsm

import (
	"errors"
	"fmt"
)

// What cancels the context of a step; context.Cause tells which. After the first four the engine does not take the step's
// error for one: the claim goes back as it was, or belongs to someone else already, or the instance has ended (spec §3). After
// ErrDeadline an error, and a Retry, fails the instance with [FailureDeadline]; any other outcome is committed as it is.
var (
	ErrDraining    = errors.New("gendurable: engine stopping")
	ErrLeaseLost   = errors.New("gendurable: lease lost")
	ErrKeyLost     = errors.New("gendurable: partition key's lock lost")
	ErrCancelled   = errors.New("gendurable: instance cancelled")
	ErrStepTimeout = errors.New("gendurable: step timeout")
	ErrDeadline    = errors.New("gendurable: instance over its deadline")
)

var (
	// ErrTooLarge is wrapped where an encoded state, result or payload is over the engine's limit.
	ErrTooLarge = errors.New("gendurable: over the limit")
	// ErrNotTerminal is wrapped where the result of an instance that has not ended was asked for.
	ErrNotTerminal = errors.New("gendurable: instance has not ended")
	// ErrGoexit is the Value of a [PanicError] whose step ended its goroutine by runtime.Goexit.
	ErrGoexit = errors.New("gendurable: step called runtime.Goexit")
)

// DefinitionError is a fault of a machine's declaration or definition. engine.New reports all of them; an insert reports those of
// the declaration.
type DefinitionError struct {
	Machine string // as declared
	Version int
	Field   string // e.g. "name" or `steps["ship"].to`
	Err     error  // what is wrong, with the bound
}

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("machine %.80q version %d: %s: %v", e.Machine, e.Version, e.Field, e.Err)
}

func (e *DefinitionError) Unwrap() error { return e.Err }

// OutcomeError is an outcome that cannot be committed. It goes to the machine's handler, as an error of the step.
type OutcomeError struct {
	Field string // e.g. "state", "delay" or "children[3].key"
	Err   error
}

func (e *OutcomeError) Error() string { return fmt.Sprintf("outcome: %s: %v", e.Field, e.Err) }
func (e *OutcomeError) Unwrap() error { return e.Err }

// SpecError is a [Spec] that cannot be inserted.
type SpecError struct {
	Field string // "machine", "step", "queue", "priority", "key", "scope", "partition_key", "delay", "at" or "state"
	Err   error
}

func (e *SpecError) Error() string { return fmt.Sprintf("spec: %s: %v", e.Field, e.Err) }
func (e *SpecError) Unwrap() error { return e.Err }

// MessageError is a [Message] that cannot be sent.
type MessageError struct {
	Field string // "name", "dedup_key" or "payload"
	Err   error
}

func (e *MessageError) Error() string { return fmt.Sprintf("message: %s: %v", e.Field, e.Err) }
func (e *MessageError) Unwrap() error { return e.Err }

// DecodeError is a stored value that does not decode into the type that is asked for.
type DecodeError struct {
	Field string // "state", "result", or which payload or child
	Err   error
}

func (e *DecodeError) Error() string { return fmt.Sprintf("decode %s: %v", e.Field, e.Err) }
func (e *DecodeError) Unwrap() error { return e.Err }

// PanicError is what the handler gets for a step that panicked, or that called runtime.Goexit.
type PanicError struct {
	Value any    // of the panic; ErrGoexit after runtime.Goexit
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// FailedError is an instance that ended as failed: of [Machine.Wait] and [Child.Result].
type FailedError struct {
	ID      ID
	Machine string
	Failure Failure
	Message string // its last_error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("instance %d of machine %q failed (%s): %s", e.ID, e.Machine, e.Failure, e.Message)
}

// MachineError is a typed read of an instance that belongs to another machine.
type MachineError struct {
	ID        ID
	Want, Got string // names of machines
}

func (e *MachineError) Error() string {
	return fmt.Sprintf("instance %d is of machine %q, not %q", e.ID, e.Got, e.Want)
}
