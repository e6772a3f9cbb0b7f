package fsm

import (
	"fmt"

	"github.com/gendurable/gendurable/internal/step"
)

// Signal with payload T; sender and receiver share the value.
type Signal[T any] struct{ name string }

// AnySignal is a [Signal] of any payload.
type AnySignal interface {
	Name() string
	signal()
}

// DeclareSignal names a signal, durably: 1 to 512 bytes. It never fails: a wrong name shows where it is awaited or sent.
func DeclareSignal[T any](name string) Signal[T] { return Signal[T]{name} }

// Name as declared.
func (s Signal[T]) Name() string { return s.name }

func (s Signal[T]) signal() {}

// With makes a message to send.
func (s Signal[T]) With(payload T) Message { return Message{name: s.name, payload: payload} }

// First is the payload of the oldest among the awaited. !ok: there is none, since the await timed out or another signal came. An err is a
// [DecodeError].
func (s Signal[T]) First(v AnyVisit) (payload T, ok bool, err error) {
	for _, r := range v.execution().claim.Awaited {
		if r.Name == s.name {
			payload, err = s.decode(v, r)
			return payload, err == nil, err
		}
	}
	return payload, false, nil
}

// All are the payloads among the awaited, oldest first. One that does not decode is a [DecodeError]; the others are returned up to it.
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

// Decode is the payload of one that [Visit.Awaited] or [Visit.Inbox] returned. A signal of another name or one that does not
// decode is a [DecodeError].
func (s Signal[T]) Decode(v AnyVisit, r Received) (payload T, err error) {
	if r.Name != s.name {
		return payload, &DecodeError{Field: fmt.Sprintf("signal %d", r.ID), Err: fmt.Errorf("it is %q, not %q", r.Name, s.name)}
	}
	return s.decode(v, step.Signal{ID: r.ID, Name: r.Name, Payload: r.Payload})
}

func (s Signal[T]) decode(v AnyVisit, r step.Signal) (T, error) {
	return decode[T](v.execution().env.Codec, r.Payload, fmt.Sprintf("payload of signal %d, %q", r.ID, r.Name))
}

// Message is a signal on its way; [Signal.With] makes it. Its methods return changed copies.
type Message struct {
	name, dedupKey string
	deduped        bool
	payload        any
}

// DedupKey makes delivery idempotent until the target ends: 1 to 512 bytes, e.g. the id of a webhook's event.
func (m Message) DedupKey(key string) Message {
	m.dedupKey, m.deduped = key, true
	return m
}

// Name of the signal.
func (m Message) Name() string { return m.name }

// Payload as given to [Signal.With].
func (m Message) Payload() any { return m.payload }

// Erase is for the engine: it validates the message and encodes its payload. Its errors are of type [MessageError].
func (m Message) Erase(env *step.Env) (*step.Signal, error) {
	if err := checkName(m.name); err != nil {
		return nil, &MessageError{Field: "name", Err: err}
	}
	if m.deduped {
		if err := checkName(m.dedupKey); err != nil {
			return nil, &MessageError{Field: "dedup_key", Err: err}
		}
	}
	payload, err := encode(envOf(env), m.payload)
	if err != nil {
		return nil, &MessageError{Field: "payload", Err: err}
	}
	return &step.Signal{Name: m.name, Payload: payload, DedupKey: m.dedupKey}, nil
}
