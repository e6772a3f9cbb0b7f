package model

import (
	"errors"
	"slices"
)

// What a delivery can meet. Nothing is inserted then.
var (
	ErrNoTarget  = errors.New("no live target")
	ErrInboxFull = errors.New("inbox full")
)

// Address of an instance: the correlation key that it occupies, or its id.
type Address struct {
	ID  ID
	Key string // "": by ID
}

// Find returns the instance at an address, or nil.
func (w *World) Find(at Address) *Instance {
	if at.Key != "" {
		return w.Occupant(at.Key)
	}
	return w.Get(at.ID)
}

// Delivery is what became of a signal.
type Delivery struct {
	Target    ID
	Woken     bool
	Duplicate bool // it has been delivered before: nothing was inserted and nobody woken
}

// Deliver puts a signal into the inbox of a live instance that holds fewer than inbox unconsumed ones. That a signal is a duplicate
// outranks that the inbox is full, and holds of consumed signals, too.
func (w *World) Deliver(to Address, name, payload, dedupKey string, inbox int) (Delivery, error) {
	i := w.Find(to)
	if i == nil || i.Status.Terminal() {
		return Delivery{}, ErrNoTarget
	}
	if dedupKey != "" && w.Signals(func(s *Signal) bool { return s.Target == i.ID && s.DedupKey == dedupKey }) != nil {
		return Delivery{Target: i.ID, Duplicate: true}, nil
	}
	if len(w.Inbox(i.ID)) >= inbox {
		return Delivery{Target: i.ID}, ErrInboxFull
	}
	w.lastSent++
	w.signals = append(w.signals, &Signal{ID: w.lastSent, Target: i.ID, Name: name, Payload: payload, DedupKey: dedupKey, Consumed: Never})
	woken := i.Status == AwaitingSignal && slices.Contains(i.Awaits, name)
	if woken {
		w.wake(i)
	}
	return Delivery{Target: i.ID, Woken: woken}, nil
}
