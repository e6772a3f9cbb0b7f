package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Machine is the identity of a machine whose instances have a state S and a result R. Programs that
// only insert, signal or read need no more; its behaviour is a [Definition]. It is immutable.
type Machine[S, R any] struct{ d declaration }

type declaration struct {
	name, queue, initial string
	version              int
	queued               bool // Queue names the queue
	deadline             time.Duration
	retain               Retention
	stateSince           int // 0: since this version
	resultSince          int // likewise
	nilOption            bool
	key                  *declaredKey // nil: specs say which key they have
	scope                Scope

	state, result reflect.Type
}

// DeclareOption sets a property of a declaration that inserters need to know, too: [Version],
// [Queue], [Initial], [Deadline], [Retain], [KeyFromState], [KeyBy], [KeyScope], [StateSince],
// [ResultSince].
type DeclareOption func(*declaration)

// Version sets the version of the machine; 1 unless given. Versions run side by side, each with
// its own definition. They may differ in S and in R: typed reads never decode another version's
// unless [StateSince], [ResultSince] or a [Migrate] says how.
func Version(n int) DeclareOption { return func(d *declaration) { d.version = n } }

// Queue sets the queue of new instances, unless their [Spec] sets another. Unless given, a node of
// a graph is in the queue of the graph's root, and every other instance in "default".
func Queue(name string) DeclareOption {
	return func(d *declaration) { d.queue, d.queued = name, true }
}

// Initial sets the first step of new instances, unless their [Spec] sets another; "start" unless
// given.
func Initial(step string) DeclareOption { return func(d *declaration) { d.initial = step } }

// Deadline sets the deadline of new instances, unless their [Spec] sets another. An instance that
// has not ended d after its insertion fails with [FailureDeadline], whatever it waits for. If a
// step is running then, its context ends with the cause [ErrDeadline]; an outcome by which the step
// itself ends the instance still counts. The children of the instance go on. Unless given, there is
// no deadline.
func Deadline(d time.Duration) DeclareOption { return func(o *declaration) { o.deadline = d } }

// Declare gives a machine its durable name. It never fails: engine.New and every insert report what
// is wrong.
func Declare[S, R any](name string, opts ...DeclareOption) *Machine[S, R] {
	return &Machine[S, R]{declare(name, reflect.TypeFor[S](), reflect.TypeFor[R](), opts)}
}

func declare(name string, state, result reflect.Type, opts []DeclareOption) declaration {
	d := declaration{name: name, queue: "default", initial: "start", version: 1, state: state, result: result}
	for _, option := range opts {
		if option == nil {
			d.nilOption = true
			continue
		}
		option(&d)
	}
	return d
}

func (d *declaration) fault(field string, err error) error {
	return &DefinitionError{Machine: d.name, Version: d.version, Field: field, Err: err}
}

func (d *declaration) faults() []error {
	var faults []error
	for _, n := range []struct{ field, name string }{{"name", d.name}, {"queue", d.queue}, {"initial", d.initial}} {
		if err := checkName(n.name); err != nil {
			faults = append(faults, d.fault(n.field, err))
		}
	}
	if d.version < 1 || d.version > math.MaxInt32 {
		faults = append(faults, d.fault("version", fmt.Errorf("%d, want 1 to %d", d.version, math.MaxInt32)))
	}
	if err := checkDelay(d.deadline); err != nil {
		faults = append(faults, d.fault("deadline", err))
	}
	if field, err := d.retain.fault(); err != nil {
		faults = append(faults, d.fault("retain."+field, err))
	}
	faults = append(faults, d.sinceFaults()...)
	faults = append(faults, d.keyFaults()...)
	if d.nilOption {
		faults = append(faults, d.fault("options", errors.New("nil option")))
	}
	return faults
}

// typeFaults returns which of the types a codec does not give back.
func (d *declaration) typeFaults(c Codec) (faults []error) {
	if err := step.CheckType(c, d.state); err != nil {
		faults = append(faults, d.fault("state", err))
	}
	if err := step.CheckType(c, d.result); err != nil {
		faults = append(faults, d.fault("result", err))
	}
	return faults
}

// Name returns the name as declared.
func (m *Machine[S, R]) Name() string { return m.d.name }

// declared returns the declaration; nil of no machine.
func (m *Machine[S, R]) declared() *declaration {
	if m == nil {
		return nil
	}
	return &m.d
}

// Version returns the version as declared.
func (m *Machine[S, R]) Version() int { return m.d.version }

// New describes an instance to insert or to spawn. It begins at the initial step, with this state.
// If the machine declares its keys ([KeyFromState], [KeyBy]), the spec has the key of this state.
func (m *Machine[S, R]) New(state S) Spec { return m.d.spec(state) }

func (d *declaration) spec(state any) Spec {
	s := Spec{
		o:        Options{Machine: d.name, Version: d.version, Step: d.initial, Queue: d.queue, Deadline: d.deadline, Retain: d.retain, Scope: d.scope},
		state:    state,
		declared: errors.Join(d.faults()...),
		of:       d.state,
		queued:   d.queued,
	}
	if d.key != nil && s.declared == nil {
		s = s.keyed(d.key)
	}
	return s
}

// Define gives the machine its steps; the initial step must be among them.
func (m *Machine[S, R]) Define(steps ...StepDef[S, R]) *Defined[S, R] {
	return &Defined[S, R]{plan: plan{declared: m.d}, steps: slices.Clone(steps)}
}

// Job defines the machine by one function, which runs until it succeeds. It is retried by
// RetryPolicy{} unless [Defined.Retry] or [Defined.OnError] replace that. The machine's only step
// is the initial one. The function gets its attempt and its idempotency key by [InfoFrom].
//
//go:noinline
func (m *Machine[S, R]) Job(f func(ctx context.Context, args S) (R, error)) *Defined[S, R] {
	d := &Defined[S, R]{plan: plan{declared: m.d, job: true}}
	if f == nil {
		d.steps = []StepDef[S, R]{{stepPlan: stepPlan{name: m.d.initial}}}
		return d
	}
	d.steps = []StepDef[S, R]{Step(m.d.initial, func(ctx context.Context, v *Visit[S, R]) (Outcome, error) {
		result, err := f(ctx, v.State)
		if err != nil {
			return nil, err
		}
		return v.Done(result), nil
	})}
	return d
}

// Wait blocks until the instance is terminal and returns its result. It returns a *[FailedError] if
// the instance failed, a *[MachineError] if it belongs to another machine, and a *[VersionError] if
// it is of another version whose results this one does not read.
func (m *Machine[S, R]) Wait(ctx context.Context, from Reader, of Target) (result R, err error) {
	raw, err := m.d.owned(from.Wait(ctx, of))
	if err != nil {
		return result, err
	}
	return resultOf[R](&m.d, definition(from, &m.d), from.Codec(), raw)
}

// WaitParked blocks until the instance is parked at a visit after past, or terminal, and returns it
// as Get does: see the engine's method of that name.
func (m *Machine[S, R]) WaitParked(ctx context.Context, from ParkedReader, of Target, past int64) (i Instance[S, R], err error) {
	raw, err := m.d.owned(from.WaitParked(ctx, of, past))
	if err != nil {
		return i, err
	}
	return typed[S, R](&m.d, definition(from, &m.d), from.Codec(), raw)
}

// Get reads the instance. It returns a *[MachineError] if the instance belongs to another machine,
// a [DecodeError] if the state or the result does not fit, and a *[VersionError] if the instance is
// of a version that this machine does not read. With the latter two it also returns the rest of the
// instance.
func (m *Machine[S, R]) Get(ctx context.Context, from Reader, of Target) (i Instance[S, R], err error) {
	raw, err := m.d.owned(from.Get(ctx, of))
	if err != nil {
		return i, err
	}
	return typed[S, R](&m.d, definition(from, &m.d), from.Codec(), raw)
}

// owned refuses an instance of another machine.
func (d *declaration) owned(i RawInstance, err error) (*RawInstance, error) {
	if err == nil && i.Machine != d.name {
		err = &MachineError{ID: i.ID, Want: d.name, Got: i.Machine}
	}
	return &i, err
}

// Children returns the children of this machine, of any version, in the round that joins at this
// visit, in spawn order. The Result of one of another version is a *[VersionError], unless this
// version reads it.
func (m *Machine[S, R]) Children(v AnyVisit) []Child[R] { return children[R](v.execution(), &m.d) }

// EachChild reads, of the children that join at this visit, this machine's, in spawn order, in
// pages of about 1 MiB: for rounds of any size, in a step with [StepDef.ChildrenOnDemand]. An
// error ends it.
func (m *Machine[S, R]) EachChild(ctx context.Context, v AnyVisit) iter.Seq2[Child[R], error] {
	return eachChild[R](ctx, v.execution(), &m.d)
}

// StateOf decodes the state of an instance that was read by other means, as [Machine.Get] does. The
// engine's function Raw makes such an instance of a row of the ent client. It takes ID, Machine,
// Version and State of it, and returns a [DecodeError] if one of them was not read, or an error of
// Get.
func (m *Machine[S, R]) StateOf(from Reader, i RawInstance) (state S, err error) {
	raw, err := m.d.stateFrom(from, &i)
	if err != nil {
		return state, err
	}
	if state, err = decode[S](from.Codec(), raw, "state"); err != nil {
		return state, fmt.Errorf("instance %d: %w", i.ID, err)
	}
	return state, nil
}

// ResultOf decodes the result of an instance that was read by other means, like
// [Machine.StateOf]. It also takes Status, Result, Failure and LastError. It returns an
// [ErrNotTerminal] before the end, and a *[FailedError] if the instance failed.
func (m *Machine[S, R]) ResultOf(from Reader, i RawInstance) (result R, err error) {
	if i.Machine == "" || i.Version == 0 || i.Status == "" || i.Status == StatusDone && i.Result == nil {
		return result, unselected("result", "machine, version, status, result, failure and last_error")
	}
	if _, err = m.d.owned(i, nil); err != nil {
		return result, err
	}
	return resultOf[R](&m.d, definition(from, &m.d), from.Codec(), &i)
}

// stateFrom returns the state of an instance in the form of this version, still encoded.
func (d *declaration) stateFrom(from Reader, i *RawInstance) (json.RawMessage, error) {
	if i.Machine == "" || i.Version == 0 || i.State == nil {
		return nil, unselected("state", "machine, version and state")
	}
	if _, err := d.owned(*i, nil); err != nil {
		return nil, err
	}
	return d.stateOf(definition(from, d), from.Codec(), i.ID, i.Version, i.State)
}

// unselected is the error of a row that was read in part.
func unselected(field, needs string) error {
	return &DecodeError{Field: field, Err: fmt.Errorf("the query selected only a part of the instance: it needs %s", needs)}
}

// DecodeState decodes the state of a row that was read by other means, and that is of this version:
// the caller has to look. It returns a [DecodeError] if the state does not fit S.
func (m *Machine[S, R]) DecodeState(c Codec, raw json.RawMessage) (S, error) {
	return decode[S](c, raw, "state")
}

// DecodeResult decodes the result of a row that was read by other means, and that is of this
// version: the caller has to look. It returns a [DecodeError] if the result does not fit R.
func (m *Machine[S, R]) DecodeResult(c Codec, raw json.RawMessage) (R, error) {
	return decode[R](c, raw, "result")
}
