package fsm

import (
	"fmt"
	"reflect"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Signal is a signal with a payload of type T. Sender and receiver use the same value.
type Signal[T any] struct{ name string }

// AnySignal is a [Signal] with a payload of any type.
type AnySignal interface {
	Name() string
	signal()
}

// DeclareSignal gives a signal its durable name of 1 to 512 bytes. It never fails: Await and the
// verbs that send report a wrong name.
func DeclareSignal[T any](name string) Signal[T] { return Signal[T]{name} }

// Name returns the name as declared.
func (s Signal[T]) Name() string { return s.name }

func (s Signal[T]) signal() {}

// With makes a message to send, with this payload.
func (s Signal[T]) With(payload T) Message {
	return Message{name: s.name, payload: payload, of: reflect.TypeFor[T]()}
}

// First returns the payload of the oldest signal of this name in [Visit.Awaited]. If there is none,
// since the await timed out or another signal came, ok is false. It returns a [DecodeError] if the
// payload does not decode.
func (s Signal[T]) First(v AnyVisit) (payload T, ok bool, err error) {
	for _, r := range v.execution().claim.Awaited {
		if r.Name == s.name {
			payload, err = s.decode(v, r)
			return payload, err == nil, err
		}
	}
	return payload, false, nil
}

// All returns the payloads of the signals of this name in [Visit.Awaited], oldest first. At the
// first one that does not decode it returns the payloads before it, and a [DecodeError].
func (s Signal[T]) All(v AnyVisit) ([]T, error) {
	var all []T
	for _, r := range v.execution().claim.Awaited {
		if r.Name != s.name {
			continue
		}
		payload, err := s.decode(v, r)
		if err != nil {
			return all, err
		}
		all = append(all, payload)
	}
	return all, nil
}

// Decode returns the payload of a signal that [Visit.Awaited] or [Visit.Inbox] returned. It returns
// a [DecodeError] if the signal has another name or its payload does not decode.
func (s Signal[T]) Decode(v AnyVisit, r Received) (payload T, err error) {
	if r.Name != s.name {
		return payload, &DecodeError{Field: fmt.Sprintf("signal %d", r.ID), Err: fmt.Errorf("it is %q, not %q", r.Name, s.name)}
	}
	return s.decode(v, step.Signal{ID: r.ID, Name: r.Name, Payload: r.Payload})
}

func (s Signal[T]) decode(v AnyVisit, r step.Signal) (T, error) {
	return decode[T](v.execution().env.Codec, r.Payload, fmt.Sprintf("payload of signal %d, %q", r.ID, r.Name))
}

// Message is a signal to send; [Signal.With] makes it. Its methods return changed copies.
type Message struct {
	name, dedupKey string
	deduped        bool
	payload        any
	of             reflect.Type
	keep           time.Duration
}

// DedupKey makes delivery idempotent until the target ends. The key has 1 to 512 bytes, e.g. the id
// of a webhook's event.
func (m Message) DedupKey(key string) Message {
	m.dedupKey, m.deduped = key, true
	return m
}

// KeepFor keeps the message for d if no instance occupies the [Key] that it is sent to. The first
// instance that occupies the key within d then has the message in its inbox. An ended instance
// whose scope keeps the key still occupies it, and takes no messages. d is over 0 and at most 100
// years. A message to an id is never kept.
func (m Message) KeepFor(d time.Duration) Message {
	m.keep = d
	if d == 0 {
		m.keep = -1 // 0 is the message without KeepFor
	}
	return m
}

// Name returns the name of the signal.
func (m Message) Name() string { return m.name }

// Payload returns the payload as given to [Signal.With].
func (m Message) Payload() any { return m.payload }

// erase validates the message and encodes its payload. Its errors are of type [MessageError].
func (m Message) erase(env *step.Env) (*step.Signal, error) {
	if err := checkName(m.name); err != nil {
		return nil, &MessageError{Field: "name", Err: err}
	}
	if m.deduped {
		if err := checkName(m.dedupKey); err != nil {
			return nil, &MessageError{Field: "dedup_key", Err: err}
		}
	}
	if m.keep < 0 || m.keep > MaxDelay {
		return nil, &MessageError{Field: "keep_for", Err: fmt.Errorf("%v, want over 0 and at most 100 years", m.keep)}
	}
	env = envOf(env)
	if err := step.CheckType(env.Codec, m.of); err != nil {
		return nil, &MessageError{Field: "payload", Err: err}
	}
	payload, err := encode(env, m.payload)
	if err != nil {
		return nil, &MessageError{Field: "payload", Err: err}
	}
	return &step.Signal{Name: m.name, Payload: payload, DedupKey: m.dedupKey, Keep: m.keep}, nil
}
