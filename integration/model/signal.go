package model

import (
	"errors"
	"slices"
)

// Deliver may return these errors. Then it inserts nothing.
var (
	ErrNoTarget  = errors.New("no live target")
	ErrInboxFull = errors.New("inbox full")
)

// Address names an instance: by the correlation key that it occupies, or by its id.
type Address struct {
	ID  ID
	Key string // "": the address is ID
}

// Find returns the instance at an address, or nil.
func (w *World) Find(at Address) *Instance {
	if at.Key != "" {
		return w.Occupant(at.Key)
	}
	return w.Get(at.ID)
}

// Delivery is the result of a delivery.
type Delivery struct {
	Target    ID
	Woken     bool
	Duplicate bool // it was delivered before: nothing was inserted and nobody woken
}

// Deliver puts a signal into the inbox of a live instance that holds fewer than inbox unconsumed
// ones. It recognises a duplicate even if the inbox is full, and even if the earlier signal is
// consumed.
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
	woken := i.Status.Parked() && slices.Contains(i.Awaits, name)
	if woken {
		w.wake(i)
	}
	return Delivery{Target: i.ID, Woken: woken}, nil
}
