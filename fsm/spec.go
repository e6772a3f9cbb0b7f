package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
)

// Scope says in which statuses of its owner a correlation key is occupied. What would wedge a queue (spec §7) cannot be said with it.
type Scope uint8

// The five scopes. The zero value is ScopeLive.
const (
	ScopeLive         = Scope(step.ScopeLive)         // until its owner is terminal
	ScopeLiveOrDone   = Scope(step.ScopeLiveOrDone)   // and if done, until GC
	ScopeLiveOrFailed = Scope(step.ScopeLiveOrFailed) // and if failed, until GC
	ScopeAll          = Scope(step.ScopeAll)          // until GC
	ScopeNone         = Scope(step.ScopeNone)         // never: a mark, neither unique nor an address
)

// Spec describes an instance that does not exist yet; [Machine.New] makes it. Its methods return changed copies, so a dropped result
// changes nothing. What is wrong shows where it is used, as a *[SpecError].
type Spec struct {
	o                    Options
	state                any
	declared             error // what is wrong with the machine
	keyed                error // why KeyFromState made none
	hasKey, hasPartition bool
	after, when          bool
	encoded              bool // state is what the codec made of it
}

// Options are what a Spec says, for middleware and tests.
type Options struct {
	Machine      string
	Version      int
	Step         string
	Queue        string
	Priority     int
	Key          Key // "": none
	Scope        Scope
	PartitionKey string        // "": none
	Delay        time.Duration // or
	At           time.Time     // zero: now
	Deadline     time.Duration // from the insert on; 0: none
	Labels       map[string]string
}

// Options of the spec so far. What is done to its labels changes nothing in the spec.
func (s Spec) Options() Options {
	o := s.o
	o.Labels = maps.Clone(o.Labels)
	return o
}

// State as given to [Machine.New]; of a schedule, the json.RawMessage that the codec has made of it.
func (s Spec) State() any { return s.state }

// Key makes the instance unique, and an address, while its status is in [Spec.Scope]: 1 to 512 bytes.
func (s Spec) Key(k Key) Spec {
	s.o.Key, s.hasKey, s.keyed = k, true, nil
	return s
}

// KeyFromState makes a Key of the machine's name and the state: equal states get equal keys, in every version of the machine and
// with every codec. It hashes the state's JSON in a canonical form; a state that has none is a fault of the spec.
func (s Spec) KeyFromState() Spec {
	s.o.Key, s.keyed = stateKey(s.o.Machine, s.state)
	s.hasKey = true
	return s
}

// Scope says how long a key is occupied; ScopeLive unless given. Without a key it says nothing.
func (s Spec) Scope(c Scope) Spec {
	s.o.Scope = c
	return s
}

// PartitionKey makes the instances that share it run one at a time, across all processes and queues, and in order within
// a queue: 1 to 512 bytes.
func (s Spec) PartitionKey(k string) Spec {
	s.o.PartitionKey, s.hasPartition = k, true
	return s
}

// Queue replaces the machine's own.
func (s Spec) Queue(name string) Spec {
	s.o.Queue = name
	return s
}

// Priority within the queue, lower first; 0 unless given, in the range of int16.
func (s Spec) Priority(p int) Spec {
	s.o.Priority = p
	return s
}

// After delays the first step, from the insert on: not negative, at most 100 years, and not together with At.
func (s Spec) After(d time.Duration) Spec {
	s.o.Delay, s.after = d, true
	return s
}

// At delays the first step until a time: a past one means now, at most 100 years from now, and not together with After.
func (s Spec) At(t time.Time) Spec {
	s.o.At, s.when = t, true
	return s
}

// Deadline replaces the machine's own, see [Deadline]: from the insert on, not negative, at most 100 years; 0 is none.
func (s Spec) Deadline(d time.Duration) Spec {
	s.o.Deadline = d
	return s
}

// Label adds a label by which the instance can be found and counted, or replaces the one of that name: at most 16 of them, names of 1 to
// 64 bytes, values of up to 256. They never change afterwards.
func (s Spec) Label(name, value string) Spec {
	labels := make(map[string]string, len(s.o.Labels)+1)
	maps.Copy(labels, s.o.Labels)
	labels[name] = value
	s.o.Labels = labels
	return s
}

// Step replaces the machine's initial one. Where the machine is registered, a step that it does not have is a fault of the spec.
func (s Spec) Step(name string) Spec {
	s.o.Step = name
	return s
}

// Erase is for the engine: it validates the spec and encodes its state. Its errors are of type [SpecError].
func (s Spec) Erase(env *step.Env) (*step.Spec, error) {
	if s.declared != nil {
		return nil, specFault("machine", s.declared)
	}
	at, err := s.check()
	if err != nil {
		return nil, err
	}
	if err := s.checkStep(envOf(env)); err != nil {
		return nil, specFault("step", err)
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
	return &step.Spec{
		UID: uid, Machine: s.o.Machine, Version: s.o.Version, Step: s.o.Step, Queue: s.o.Queue, Priority: int16(s.o.Priority), //nolint:gosec // checked
		State: state, Key: string(s.o.Key), Scope: step.Scope(s.o.Scope), PartitionKey: s.o.PartitionKey, Delay: s.o.Delay, At: at,
		Deadline: s.o.Deadline, Labels: labels,
	}, nil
}

func (s Spec) encode(env *step.Env) (json.RawMessage, error) {
	if raw, ok := s.state.(json.RawMessage); ok && s.encoded {
		return raw, nil
	}
	return encode(env, s.state)
}

// Restore is for the engine: a spec that Erase made and that was stored, as its author had written it but for the key, its time and the
// encoding of the state.
func Restore(stored *step.Spec) (Spec, error) {
	s := Spec{
		o: Options{Machine: stored.Machine, Version: stored.Version, Step: stored.Step, Queue: stored.Queue, Priority: int(stored.Priority),
			PartitionKey: stored.PartitionKey, Deadline: stored.Deadline},
		state: stored.State, encoded: true, hasPartition: stored.PartitionKey != "",
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
		{"queue", s.o.Queue, true},
		{"key", string(s.o.Key), s.hasKey && s.keyed == nil},
		{"partition_key", s.o.PartitionKey, s.hasPartition},
	} {
		if !n.given {
			continue
		}
		if err := checkName(n.name); err != nil {
			return at, specFault(n.field, err)
		}
	}
	switch {
	case s.keyed != nil:
		return at, specFault("key", s.keyed)
	case s.o.Scope > ScopeNone:
		return at, specFault("scope", fmt.Errorf("%d is none of the five", s.o.Scope))
	case s.o.Priority < math.MinInt16 || s.o.Priority > math.MaxInt16:
		return at, specFault("priority", fmt.Errorf("%d, want %d to %d", s.o.Priority, math.MinInt16, math.MaxInt16))
	case s.after && s.when:
		return at, specFault("at", errors.New("both After and At"))
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
	return at, nil
}

// checkStep refuses a step that the machine does not have, where this process has registered the machine. A client knows only
// its declaration and cannot tell. A stored spec is not checked: a newer program may have stored it.
func (s Spec) checkStep(env *step.Env) error {
	if env.Machine == nil || s.encoded {
		return nil
	}
	m := env.Machine(s.o.Machine, s.o.Version)
	if m == nil {
		return nil
	}
	if _, ok := m.Steps[s.o.Step]; !ok {
		return fmt.Errorf("no step %q, only %q", s.o.Step, slices.Sorted(maps.Keys(m.Steps)))
	}
	return nil
}

func specFault(field string, err error) error { return &SpecError{Field: field, Err: err} }
