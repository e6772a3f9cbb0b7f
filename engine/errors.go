package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// These errors answer questions by errors.Is. Those with data also have a type, for errors.As.
var (
	// ErrDuplicate is returned by Insert and [Admin.Retry], as a *[DuplicateError], when another
	// instance occupies the correlation key.
	ErrDuplicate = errors.New("gendurable: key occupied")
	// ErrThrottled is returned by Insert, as a *[ThrottledError], when the spec's window is taken.
	ErrThrottled = errors.New("gendurable: window taken")
	// ErrNoTarget is returned by Signal when no live instance has that address.
	ErrNoTarget = store.ErrNoTarget
	// ErrInboxFull is returned by Signal when the instance holds as many unconsumed signals as
	// Limits.Inbox allows.
	ErrInboxFull = store.ErrInboxFull
	// ErrUnknown is returned when the connection was lost before a COMMIT was answered, and a
	// repetition could insert or deliver twice. It is returned by inserts without a correlation key,
	// by inserts with one whose ctx ended before they could find out, by Signal without a dedup key,
	// by Signal with one whose target has ended in between, and by Admin. Look, then repeat.
	ErrUnknown = store.ErrUnknown
	// ErrTooLarge is returned by inserts and Signal when a state or payload is over
	// Limits.PayloadBytes.
	ErrTooLarge = fsm.ErrTooLarge
	// ErrNotFound is returned by Get, Wait, Errors and Admin when no instance has that address: it
	// never existed, was deleted after its retention, or no longer occupies that key.
	ErrNotFound = store.ErrNotFound
	// ErrNoSchedule is returned by Admin when no schedule has that name.
	ErrNoSchedule = store.ErrNoSchedule
	// ErrConflict is returned by Admin, as a *[ConflictError], when the instance's state does not
	// allow the verb, or no longer matches [IfUnchanged].
	ErrConflict = errors.New("gendurable: conflict")
	// ErrUseRestart is returned by [Admin.Retry] and [Admin.Rewind], within a *[ConflictError], when
	// an instance belongs to a graph, and only [Admin.Restart] lets that go on: a node; a root at the
	// join of nodes that have failed; an instance that works for a node that has failed. A Restart of
	// the last one is refused, too: restart the node.
	ErrUseRestart = store.ErrUseRestart
	// ErrOutside is returned by the verbs of [Admin], within a *[ConflictError], when a verb that is
	// bound ([Within], or Within of a [Filter]) would also change instances outside of its bounds.
	// Nothing was changed.
	ErrOutside = store.ErrOutside
	// ErrTooWide is returned likewise when so many instances hang together with one, as nodes of a
	// graph or beneath it, that the verb does not look whether all lie within the bounds.
	ErrTooWide = store.ErrTooWide
	// ErrLive is returned by [Tx.RequireEnded], as a *[LiveError], when an instance has not ended, and
	// so by the delete of an entity that a machine drives.
	ErrLive = errors.New("gendurable: instance is live")
	// ErrCounts is returned by Counts when the instances could not be counted in time, and no earlier
	// count exists.
	ErrCounts = errors.New("gendurable: too many instances to count in time")
	// ErrSchema is returned by Start when the engine's tables are missing, or older or newer than this
	// program needs. Its text says which, and what to run.
	ErrSchema = errors.New("gendurable: schema not current")
	// ErrRights is returned by Start, inserts, signals, reads and Admin, as a *[RightsError], when the
	// role of the Pool lacks rights. The *RightsError has the statements that grant them.
	ErrRights = errors.New("gendurable: rights are lacking")
	// ErrPooler is returned by Start when a proxy before Postgres pools transactions while the Config
	// relies on sessions. It wraps a *[ConfigError] for each field concerned, which says what to set
	// instead.
	ErrPooler = errors.New("gendurable: the proxy before Postgres pools transactions")
	// ErrElsewhere is returned where Citus distributes the schema, and another node has it than the
	// one that the pool, or the host's transaction, leads to.
	ErrElsewhere = store.ErrElsewhere
	// ErrStopped is returned by Start when the engine was stopped before, and by Wait when it stops
	// meanwhile.
	ErrStopped = errors.New("gendurable: engine stopped")
	// ErrStarted is returned by Start when the engine is started already.
	ErrStarted = errors.New("gendurable: engine already started")
)

// DuplicateError says that another instance occupies the correlation key of an insert, or of the
// instance that Retry was to make run. It is an [ErrDuplicate].
type DuplicateError struct {
	Key      fsm.Key
	Occupant fsm.ID // the instance that has the key; 0: not told, since the verb was bound
}

func (e *DuplicateError) Error() string {
	if e.Occupant == 0 {
		return fmt.Sprintf("%v: another instance holds %.80q", ErrDuplicate, string(e.Key))
	}
	return fmt.Sprintf("%v: instance %d holds %.80q", ErrDuplicate, e.Occupant, string(e.Key))
}

// Is reports whether target is ErrDuplicate.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// ThrottledError says that another instance has the window of an insert: see [fsm.Spec.Throttle].
// It is an [ErrThrottled].
type ThrottledError struct {
	Key   fsm.Key // of the window
	First fsm.ID  // the instance that has it; it may have ended
	Until time.Time
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("%v: instance %d was inserted for %.80q, whose window lasts until %s", ErrThrottled, e.First, string(e.Key), e.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is ErrThrottled.
func (e *ThrottledError) Is(target error) bool { return target == ErrThrottled }

// ConflictError says that an operator's verb was not carried out, since the instance's state does
// not allow the verb, or no longer matches [IfUnchanged]. It is an [ErrConflict].
type ConflictError struct {
	Verb   Verb
	ID     fsm.ID
	Status fsm.Status // as it is
	Err    error      // why
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: %s of instance %d, which is %s: %v", ErrConflict, e.Verb.method(), e.ID, e.Status, e.Err)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Unwrap returns why.
func (e *ConflictError) Unwrap() error { return e.Err }

// VerbError says what is wrong with the input of an operator's verb. Nothing was sent.
type VerbError struct {
	Verb  Verb
	Field string // e.g. "Reason", "At" or "Filter.Status[1]"
	Err   error  // what is wrong, with the bound
}

func (e *VerbError) Error() string {
	return fmt.Sprintf("gendurable: %s: %s: %v", e.Verb.method(), e.Field, e.Err)
}

// Unwrap returns what is wrong.
func (e *VerbError) Unwrap() error { return e.Err }

// InsertError says what is wrong with a spec. Nothing of the whole call was inserted.
type InsertError struct {
	Index int    // in InsertMany; else 0
	Field string // as of fsm.SpecError, or "middleware" if one refused the spec
	Err   error
}

func (e *InsertError) Error() string {
	return fmt.Sprintf("gendurable: insert spec %d: %s: %v", e.Index, e.Field, e.Err)
}

// Unwrap returns what is wrong, e.g. an ErrTooLarge.
func (e *InsertError) Unwrap() error { return e.Err }

// ConfigError says what is wrong with one field of Config.
type ConfigError struct {
	Field string // e.g. "Queues[checkout].Concurrency"
	Err   error  // what is wrong, with the bound
}

func (e *ConfigError) Error() string {
	field, err := e.Field, e.Err
	if fault, ok := errors.AsType[*fsm.DefinitionError](err); ok && strings.HasSuffix(field, fault.Field) { // its text names the field again
		err = fmt.Errorf("machine %.80q version %d: %w", fault.Machine, fault.Version, fault.Err)
	} else if fault, ok := errors.AsType[*fsm.SpecError](err); ok { // its text begins with the word spec
		field, err = field+"."+fault.Field, fault.Err
	}
	return fmt.Sprintf("gendurable: config: %s: %v", field, err)
}

// Unwrap returns what is wrong, e.g. a *fsm.DefinitionError.
func (e *ConfigError) Unwrap() error { return e.Err }

// DistributedError is returned in a host's transaction by an engine that was not started, and has
// only now found out that Citus distributes the schema. The transaction has to be repeated, once.
type DistributedError = store.DistributedError
