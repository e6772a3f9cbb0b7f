package model

// Arrival is the result of a signal with start.
type Arrival struct {
	Delivery
	Inserted bool // nobody had the key, and the target is new
}

// Arrive delivers a signal to the live instance that occupies a spec's key, or inserts the spec
// with the signal in its inbox. If the key's occupant has ended, Arrive refuses, and returns the
// occupant.
func (w *World) Arrive(s Spec, name, payload, dedupKey string, inbox int) (a Arrival, occupant ID, err error) {
	if o := w.Occupant(s.Key); o != nil && o.Status.Terminal() {
		return Arrival{}, o.ID, ErrNoTarget
	}
	if w.Occupant(s.Key) == nil {
		a.Inserted = true
		w.insert(&s, nil)
	}
	w.take([]string{s.Key}) // what is kept came before
	a.Delivery, err = w.Deliver(Address{Key: s.Key}, name, payload, dedupKey, inbox)
	return a, 0, err
}
