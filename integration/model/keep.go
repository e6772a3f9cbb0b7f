package model

import (
	"cmp"
	"slices"
	"time"
)

// Kept is a signal that is kept for a key, until an instance occupies it or its time is over.
type Kept struct {
	ID       int // grows in order of keeping
	Key      string
	Name     string
	Payload  string
	DedupKey string // "": none
	Expiry   Moment
}

// Keep delivers a signal to the live instance that occupies a key, or else keeps it for the first
// that does. It refuses where the key's occupant has ended, and returns that. A kept signal of the
// same dedup key makes it a duplicate, unless that one has expired: then this one takes its place.
func (w *World) Keep(key, name, payload, dedupKey string, lasts time.Duration, inbox int) (d Delivery, kept bool, ended ID, err error) {
	if o := w.Occupant(key); o != nil {
		if o.Status.Terminal() {
			return Delivery{}, false, o.ID, ErrNoTarget
		}
		d, err = w.Deliver(Address{Key: key}, name, payload, dedupKey, inbox)
		return d, false, 0, err
	}
	alive := 0
	place := -1
	for n, k := range w.kept {
		if k.Key != key {
			continue
		}
		if k.Expiry > w.Now {
			alive++
		}
		if dedupKey != "" && k.DedupKey == dedupKey {
			place = n
		}
	}
	switch {
	case place >= 0 && w.kept[place].Expiry > w.Now:
		return Delivery{Duplicate: true}, true, 0, nil
	case alive >= inbox:
		return Delivery{}, false, 0, ErrInboxFull
	}
	k := Kept{Key: key, Name: name, Payload: payload, DedupKey: dedupKey, Expiry: w.after(lasts)}
	if place >= 0 {
		k.ID = w.kept[place].ID
		w.kept[place] = k
		return Delivery{}, true, 0, nil
	}
	w.lastKept++
	k.ID = w.lastKept
	w.kept = append(w.kept, k)
	return Delivery{}, true, 0, nil
}

// Kept returns all signals that are kept, in the order in which they came.
func (w *World) Kept() []Kept { return slices.Clone(w.kept) }

// HandOver gives kept signals to the live instances that occupy their keys, except to held ones,
// and returns those that it woke.
func (w *World) HandOver() (woken []ID) {
	var keys []string
	for _, k := range w.kept {
		keys = append(keys, k.Key)
	}
	return w.take(keys)
}

// take moves the kept signals of some keys into the inboxes of the keys' live occupants. An
// occupant has those that had not expired when it was inserted, however late it takes them. One
// whose dedup key the inbox knows is dropped.
func (w *World) take(keys []string) (woken []ID) {
	taken := func(k Kept) *Instance {
		o := w.Occupant(k.Key)
		if !slices.Contains(keys, k.Key) || o == nil || o.Status.Terminal() || w.held[o.ID] || k.Expiry <= w.born[o.ID] {
			return nil
		}
		return o
	}
	for _, k := range w.kept {
		o := taken(k)
		if o == nil || k.DedupKey != "" && w.Signals(func(s *Signal) bool { return s.Target == o.ID && s.DedupKey == k.DedupKey }) != nil {
			continue
		}
		w.lastSent++
		w.signals = append(w.signals, &Signal{ID: w.lastSent, Target: o.ID, Name: k.Name, Payload: k.Payload, DedupKey: k.DedupKey, Consumed: Never})
		if o.Status.Parked() && slices.Contains(o.Awaits, k.Name) {
			woken = append(woken, o.ID)
		}
	}
	w.kept = slices.DeleteFunc(w.kept, func(k Kept) bool { return taken(k) != nil })
	slices.SortFunc(woken, cmp.Compare)
	woken = slices.Compact(woken)
	for _, id := range woken {
		w.wake(w.Get(id))
	}
	return woken
}

// ExpireKept deletes the signals that no instance took in time: no live instance that occupies
// their key was inserted before they expired.
func (w *World) ExpireKept() (expired int) {
	before := len(w.kept)
	w.kept = slices.DeleteFunc(w.kept, func(k Kept) bool {
		o := w.Occupant(k.Key)
		return k.Expiry <= w.Now && (o == nil || o.Status.Terminal() || w.born[o.ID] >= k.Expiry)
	})
	return before - len(w.kept)
}
