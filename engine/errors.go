package engine

import (
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// What callers ask for with errors.Is. Those with data also have a type, for errors.As.
var (
	// ErrDuplicate: the correlation key is occupied. Of Insert and [Admin.Retry], as a *[DuplicateError].
	ErrDuplicate = errors.New("gendurable: key occupied")
	// ErrNoTarget: no live instance at that address. Of Signal.
	ErrNoTarget = store.ErrNoTarget
	// ErrInboxFull: the instance holds as many unconsumed signals as it may (Limits.Inbox). Of Signal.
	ErrInboxFull = store.ErrInboxFull
	// ErrUnknown is returned where the connection was lost before a COMMIT was answered, and to repeat it could insert or
	// deliver twice: by inserts without a correlation key, by those with one whose ctx ended before they could find out,
	// by Signal without a dedup key, by Signal with one whose target has ended in between, and by Admin. Look, then repeat.
	ErrUnknown = store.ErrUnknown
	// ErrTooLarge: a state or payload is over Limits.PayloadBytes. Of inserts and Signal.
	ErrTooLarge = fsm.ErrTooLarge
	// ErrNotFound: no instance at that address: never was, collected, or no longer the owner of that key. Of Get, Wait and Errors.
	ErrNotFound = store.ErrNotFound
	// ErrNoSchedule: no schedule of that name. Of Admin.
	ErrNoSchedule = store.ErrNoSchedule
	// ErrConflict: an operator's verb does not apply to the instance as it is now, or as it was to be seen. Of Admin, as a *[ConflictError].
	ErrConflict = errors.New("gendurable: conflict")
	// ErrCounts: the instances could not be counted in time, and never were before. Of Counts.
	ErrCounts = errors.New("gendurable: too many instances to count in time")
	// ErrSchema: the engine's tables are missing, older or newer than this program. Of Start; the text says which, and what to run.
	ErrSchema = errors.New("gendurable: schema not current")
	// ErrRights: the role of the Pool may not do this. Of Start, of inserts, signals, reads and Admin, as a *[RightsError], which has the
	// statements that grant it.
	ErrRights = errors.New("gendurable: rights are lacking")
	// ErrPooler: a proxy between here and Postgres pools transactions, and the Config relies on sessions. Of Start; it wraps a
	// *[ConfigError] per field, which says what to set instead.
	ErrPooler = errors.New("gendurable: the proxy before Postgres pools transactions")
	// ErrReadOnly: the client of Ent only queries; the text names the verb to use.
	ErrReadOnly = errors.New("gendurable: use the verb")
	// ErrStopped: the engine is stopped, or was while one waited. Of Start and Wait.
	ErrStopped = errors.New("gendurable: engine stopped")
	// ErrStarted: the engine is started already. Of Start.
	ErrStarted = errors.New("gendurable: engine already started")
)

// DuplicateError is an insert with an occupied correlation key, or the retry of an instance whose key another one has. It is an
// [ErrDuplicate].
type DuplicateError struct {
	Key      fsm.Key
	Occupant fsm.ID // the instance that has the key
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%v: %.80q by instance %d", ErrDuplicate, string(e.Key), e.Occupant)
}

// Is makes it an ErrDuplicate.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// ConflictError is an operator's verb that was not carried out, since the instance is not as the verb, or the caller, wants it. It is an
// [ErrConflict].
type ConflictError struct {
	Verb   Verb
	ID     fsm.ID
	Status fsm.Status // as it is
	Err    error      // why
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: %s of instance %d, which is %s: %v", ErrConflict, e.Verb, e.ID, e.Status, e.Err)
}

// Is makes it an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// VerbError is an operator's verb with bad input; nothing was sent.
type VerbError struct {
	Verb  Verb
	Field string // e.g. "Reason", "At" or "Filter.Status[1]"
	Err   error  // what is wrong, with the bound
}

func (e *VerbError) Error() string {
	return fmt.Sprintf("gendurable: %s: %s: %v", e.Verb, e.Field, e.Err)
}

// Unwrap returns what is wrong.
func (e *VerbError) Unwrap() error { return e.Err }

// SpecError is a spec that cannot be inserted; nothing of the call was.
type SpecError struct {
	Index int    // in InsertMany; else 0
	Field string // as of fsm.SpecError, or "middleware" if one refused the spec
	Err   error
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("gendurable: spec %d: %s: %v", e.Index, e.Field, e.Err)
}

// Unwrap returns what is wrong, e.g. an ErrTooLarge.
func (e *SpecError) Unwrap() error { return e.Err }

// ConfigError is a field of Config that is wrong.
type ConfigError struct {
	Field string // e.g. "Queues[checkout].Concurrency"
	Err   error  // what is wrong, with the bound
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("gendurable: config: %s: %v", e.Field, e.Err)
}

// Unwrap returns what is wrong, e.g. a *fsm.DefinitionError.
func (e *ConfigError) Unwrap() error { return e.Err }
