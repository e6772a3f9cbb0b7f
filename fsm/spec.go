package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
)

// Scope says in which statuses of an instance its correlation key is occupied. There is no scope
// for any other set of statuses, since such a key could wedge a queue (spec §7).
type Scope uint8

// The five scopes. ScopeLive is the zero value.
const (
	ScopeLive         = Scope(step.ScopeLive)         // until the instance is terminal
	ScopeLiveOrDone   = Scope(step.ScopeLiveOrDone)   // also when it is done, until GC
	ScopeLiveOrFailed = Scope(step.ScopeLiveOrFailed) // also when it has failed, until GC
	ScopeAll          = Scope(step.ScopeAll)          // in every status, until GC
	ScopeNone         = Scope(step.ScopeNone)         // never: the key is a mark, neither unique nor an address
)

// Spec describes an instance that does not exist yet; [Machine.New] makes it. Its methods return
// changed copies, so use their results. The verb that uses the spec reports its faults, as a
// *[SpecError].
type Spec struct {
	o                    Options
	state                any
	of                   reflect.Type // of states of the machine; nil: not known
	declared             error        // the fault of the machine
	keyFault             error        // why KeyFromState made no key
	own                  *ownKey      // that the machine declares; nil: it declares none
	hasKey, hasPartition bool
	queued               bool // the machine or the spec names the queue
	ofRoot               bool // the queue is that of the graph's root, which only the commit knows
	after, when          bool
	windows              bool // several kinds of windows were given
	encoded              bool // state is already encoded
}

// Options are the values that a Spec holds, for middleware and tests.
type Options struct {
	Machine      string            `json:"machine"`
	Version      int               `json:"version"`
	Step         string            `json:"step"`
	Queue        string            `json:"queue"` // "": that of the graph to which a node is added
	Priority     int               `json:"priority"`
	Key          Key               `json:"key,omitempty"` // "": none
	Scope        Scope             `json:"scope"`
	PartitionKey string            `json:"partition_key,omitempty"` // "": none
	Delay        time.Duration     `json:"delay_ns,omitempty"`      // of the first step; at most one of Delay and At is set
	At           time.Time         `json:"at,omitzero"`             // zero: after Delay
	Deadline     time.Duration     `json:"deadline_ns,omitempty"`   // from the insert on; 0: no deadline
	Labels       map[string]string `json:"labels,omitempty"`
	Conflict     Conflict          `json:"conflict,omitempty"`
	Window       Window            `json:"window,omitzero"`
	Retain       Retention         `json:"retain,omitzero"` // zero: as engine.Config says
}

// Options returns the spec's values so far. A change to the labels that it returns does not change
// the spec.
func (s Spec) Options() Options {
	o := s.o
	o.Labels = maps.Clone(o.Labels)
	return o
}

// State returns the state as given to [Machine.New]; in the spec of a schedule, it is the
// json.RawMessage that the codec made of it.
func (s Spec) State() any { return s.state }

// Key sets the correlation key, of 1 to 512 bytes. While the instance's status is in [Spec.Scope],
// the key is unique, and an address. If the machine declares its keys by [KeyFromState] or [KeyBy],
// another key than the declared one is a [KeyError].
func (s Spec) Key(k Key) Spec {
	s.o.Key, s.hasKey, s.keyFault = k, true, nil
	return s
}

// KeyFromState sets a Key made of the machine's name and the state: equal states get equal keys, in
// every version of the machine and with every codec. It hashes the state's JSON in a canonical
// form; a state that does not encode is a fault of the spec.
func (s Spec) KeyFromState() Spec {
	s.o.Key, s.keyFault = stateKey(s.o.Machine, s.state)
	s.hasKey = true
	return s
}

// Scope sets how long the correlation key is occupied, in place of the machine's [KeyScope];
// ScopeLive unless given. Without a key it has no effect.
func (s Spec) Scope(c Scope) Spec {
	s.o.Scope = c
	return s
}

// PartitionKey sets a key of 1 to 512 bytes. Instances with the same one run one at a time, across
// all processes and queues, and in order within a queue.
func (s Spec) PartitionKey(k string) Spec {
	s.o.PartitionKey, s.hasPartition = k, true
	return s
}

// Queue sets the queue, in place of the machine's own, or of a graph's for a node of it.
func (s Spec) Queue(name string) Spec {
	s.o.Queue, s.queued, s.ofRoot = name, true, false
	return s
}

// inQueue sets the queue unless the machine or the spec names one. The claim of a test may have
// none.
func (s Spec) inQueue(name string) Spec {
	if !s.queued && name != "" {
		s.o.Queue = name
	}
	return s
}

// inRootsQueue leaves the queue to the commit that adds the node to a graph, unless the machine or
// the spec names one.
func (s Spec) inRootsQueue() Spec {
	if !s.queued {
		s.o.Queue, s.ofRoot = "", true
	}
	return s
}

// Priority sets the priority within the queue, in the range of int16. Lower ones run first; 0
// unless given.
func (s Spec) Priority(p int) Spec {
	s.o.Priority = p
	return s
}

// After delays the first step by d, from the insert on. The delay must not be negative, nor over
// 100 years, and excludes At.
func (s Spec) After(d time.Duration) Spec {
	s.o.Delay, s.after = d, true
	return s
}

// At delays the first step until a time, at most 100 years from now. A past time means now. At
// excludes After.
func (s Spec) At(t time.Time) Spec {
	s.o.At, s.when = t, true
	return s
}

// Deadline sets the deadline, in place of the machine's own (see the function [Deadline]). It
// counts from the insert on, must not be negative, and is at most 100 years; 0 is no deadline.
func (s Spec) Deadline(d time.Duration) Spec {
	s.o.Deadline = d
	return s
}

// Label adds a label, by which the instance can be found and counted, or replaces the one of that
// name. A spec has at most 16 labels, with names of 1 to 64 bytes and values of up to 256. The
// labels of an instance never change.
func (s Spec) Label(name, value string) Spec {
	labels := make(map[string]string, len(s.o.Labels)+1)
	maps.Copy(labels, s.o.Labels)
	labels[name] = value
	s.o.Labels = labels
	return s
}

// Step sets the first step, in place of the machine's initial one. Where the machine is registered,
// a step that it does not have is a fault of the spec.
func (s Spec) Step(name string) Spec {
	s.o.Step = name
	return s
}

// erase validates the spec and encodes its state. Its errors are of type [SpecError].
func (s Spec) erase(env *step.Env) (*step.Spec, error) {
	if s.declared != nil {
		return nil, specFault("machine", s.declared)
	}
	at, err := s.check()
	if err != nil {
		return nil, err
	}
	if err := s.checkRegistered(envOf(env)); err != nil {
		return nil, err
	}
	state, err := s.encode(envOf(env))
	if err != nil {
		return nil, specFault("state", err)
	}
	labels, err := encodeLabels(s.o.Labels)
	if err != nil {
		return nil, specFault("labels", err)
	}
	uid, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make an instance's uid: %w", err)
	}
	delay := s.o.Delay
	if s.o.Window.Kind == WindowDebounce {
		delay = s.o.Window.For
	}
	return &step.Spec{
		UID: uid, Machine: s.o.Machine, Version: s.o.Version, Step: s.o.Step, Queue: s.o.Queue, OfRoot: s.ofRoot, Priority: int16(s.o.Priority), //nolint:gosec // checked
		State: state, Key: string(s.o.Key), Scope: step.Scope(s.o.Scope), PartitionKey: s.o.PartitionKey, Delay: delay, At: at,
		Deadline: s.o.Deadline, Labels: labels, Conflict: step.Conflict(s.o.Conflict),
		Window: step.Window{Kind: s.o.Window.Kind, Key: string(s.o.Window.Key), For: s.o.Window.For, Most: s.o.Window.Most},
		Retain: s.o.Retain.erase(),
	}, nil
}

func (s Spec) encode(env *step.Env) (json.RawMessage, error) {
	if raw, ok := s.state.(json.RawMessage); ok && s.encoded {
		return raw, nil
	}
	if err := step.CheckType(env.Codec, s.of); err != nil {
		return nil, err
	}
	return encode(env, s.state)
}

// restore returns the spec that a stored one was erased from, except for the key and the time; its
// state stays encoded.
func restore(stored *step.Spec) (Spec, error) {
	s := Spec{
		o: Options{Machine: stored.Machine, Version: stored.Version, Step: stored.Step, Queue: stored.Queue, Priority: int(stored.Priority),
			PartitionKey: stored.PartitionKey, Deadline: stored.Deadline,
			Retain: Retention{Done: stored.Retain.Done, Failed: stored.Retain.Failed, Cancelled: stored.Retain.Cancelled}},
		state: stored.State, encoded: true, queued: true, hasPartition: stored.PartitionKey != "",
	}
	if len(stored.Labels) > 0 {
		if err := json.Unmarshal(stored.Labels, &s.o.Labels); err != nil {
			return Spec{}, specFault("labels", err)
		}
	}
	return s, nil
}

func (s Spec) check() (at time.Time, err error) {
	for _, n := range []struct {
		field, name string
		given       bool
	}{
		{"machine", s.o.Machine, true},
		{"step", s.o.Step, true},
		{"queue", s.o.Queue, !s.ofRoot},
		{"key", string(s.o.Key), s.hasKey && s.own == nil && s.keyFault == nil},
		{"partition_key", s.o.PartitionKey, s.hasPartition},
	} {
		if !n.given {
			continue
		}
		if err := checkName(n.name); err != nil {
			return at, specFault(n.field, err)
		}
	}
	if err := s.checkKey(); err != nil {
		return at, specFault("key", err)
	}
	switch {
	case s.o.Scope > ScopeNone:
		return at, specFault("scope", fmt.Errorf("%d is no scope: use one from ScopeLive to ScopeNone", s.o.Scope))
	case s.o.Priority < math.MinInt16 || s.o.Priority > math.MaxInt16:
		return at, specFault("priority", fmt.Errorf("%d, want %d to %d", s.o.Priority, math.MinInt16, math.MaxInt16))
	case s.after && s.when:
		return at, specFault("at", errors.New("both After and At: use one"))
	}
	if err := checkDelay(s.o.Delay); err != nil {
		return at, specFault("delay", err)
	}
	if err := checkDelay(s.o.Deadline); err != nil {
		return at, specFault("deadline", err)
	}
	if s.when {
		if at, err = checkTime(s.o.At); err != nil {
			return at, specFault("at", err)
		}
	}
	if err := s.checkConflict(); err != nil {
		return at, specFault("conflict", err)
	}
	if err := s.checkWindow(); err != nil {
		return at, specFault("window", err)
	}
	if field, err := s.checkRetention(); err != nil {
		return at, specFault(field, err)
	}
	return at, nil
}

// checkRegistered refuses a step that the machine does not have, and a spec without a key if the
// machine declares its keys, where this process has registered the machine. A client knows only
// the declaration and cannot tell. A stored spec is not checked: a newer program may have stored
// it, and the occurrences of a schedule have other keys.
func (s Spec) checkRegistered(env *step.Env) error {
	if env.Machine == nil || s.encoded {
		return nil
	}
	m := env.Machine(s.o.Machine, s.o.Version)
	if m == nil {
		return nil
	}
	if _, ok := m.Steps[s.o.Step]; !ok {
		return specFault("step", fmt.Errorf("no step %.80q, only %q", s.o.Step, slices.Sorted(maps.Keys(m.Steps))))
	}
	if m.Keyed && s.o.Key == "" {
		return specFault("key", s.wrongKey(errKeyless))
	}
	return nil
}

func specFault(field string, err error) error { return &SpecError{Field: field, Err: err} }
