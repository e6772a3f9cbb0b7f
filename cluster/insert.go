package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Insert inserts an instance at the place of its keys, or, if it has none, at the place whose turn
// it is, and returns its id. For a spec without keys Insert goes on to the next place when one has
// not answered within Patience and has done nothing.
//
// Errors: as of [engine.Engine.Insert], within a *[PlaceError]; a *[engine.InsertError] that wraps
// ErrElsewhere if the keys belong to different places.
func (c *Cluster) Insert(ctx context.Context, spec fsm.Spec) (fsm.ID, error) {
	at, err := placed(spec, 0, len(c.places))
	if err != nil {
		return 0, err
	}
	insert := func(ctx context.Context, p *place) (fsm.ID, error) {
		return in(ctx, p, func(e *engine.Engine) (fsm.ID, error) { return e.Insert(ctx, spec) })
	}
	if at >= 0 {
		return insert(ctx, c.places[at])
	}
	for range len(c.places) - 1 {
		p := c.next()
		impatient, cancel := context.WithTimeout(ctx, c.patience)
		id, err := insert(impatient, p)
		cancel()
		if err == nil || ctx.Err() != nil || !unreachable(err) {
			return id, err
		}
		p.passUntil.Store(time.Now().Add(passOver).UnixNano())
	}
	return insert(ctx, c.next())
}

// GetOrInsert is [engine.Engine.GetOrInsert] at the place of the spec's keys.
func (c *Cluster) GetOrInsert(ctx context.Context, spec fsm.Spec) (engine.Inserted, error) {
	return keyed(ctx, c, spec, func(e *engine.Engine) (engine.Inserted, error) { return e.GetOrInsert(ctx, spec) })
}

// SignalOrInsert is [engine.Engine.SignalOrInsert] at the place of the spec's keys.
func (c *Cluster) SignalOrInsert(ctx context.Context, spec fsm.Spec, m fsm.Message) (engine.Inserted, error) {
	return keyed(ctx, c, spec, func(e *engine.Engine) (engine.Inserted, error) { return e.SignalOrInsert(ctx, spec, m) })
}

// keyed calls a verb that needs a key. For a spec without keys it calls the verb at place 0, which
// returns the error.
func keyed(ctx context.Context, c *Cluster, spec fsm.Spec, verb func(*engine.Engine) (engine.Inserted, error)) (engine.Inserted, error) {
	at, err := placed(spec, 0, len(c.places))
	if err != nil {
		return engine.Inserted{}, err
	}
	return in(ctx, c.places[max(0, at)], verb)
}

// Inserted says what InsertMany did with one spec.
type Inserted struct {
	engine.Inserted

	Place int   `json:"place"` // the place of the instance, also if it was not inserted
	Err   error `json:"-"`     // why it was not inserted; nil: it was inserted, or is a Duplicate
}

// InsertMany inserts each spec at its place, as Insert would: one transaction per place, all places
// side by side. It returns one Inserted per spec, in input order. A place that refuses or does not
// answer fails only its own specs: they have an Err, and the returned error joins the *[PlaceError]
// of each such place. Specs that failed can be inserted again, unless their error is
// [engine.ErrUnknown]. InsertMany waits for a place until ctx ends.
//
// InsertMany inserts nothing if the keys of one spec belong to different places, and returns an
// *[engine.InsertError] that wraps ErrElsewhere. Any other fault of a spec refuses all specs of its
// place; the SpecError has the index in the whole call. Limits.OutcomeBytes bounds the specs of
// each place.
func (c *Cluster) InsertMany(ctx context.Context, specs []fsm.Spec) ([]Inserted, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	done := make([]Inserted, len(specs))
	parts := map[*place][]int{}
	for i, spec := range specs {
		at, err := placed(spec, i, len(c.places))
		if err != nil {
			return nil, err
		}
		p := c.places[max(0, at)]
		if at < 0 {
			p = c.next()
		}
		done[i].Place = p.index
		parts[p] = append(parts[p], i)
	}
	var concerned []*place
	for _, p := range c.places {
		if len(parts[p]) > 0 {
			concerned = append(concerned, p)
		}
	}
	answers := side(concerned, func(p *place) ([]engine.Inserted, error) {
		part := make([]fsm.Spec, len(parts[p]))
		for i, n := range parts[p] {
			part[i] = specs[n]
		}
		return in(ctx, p, func(e *engine.Engine) ([]engine.Inserted, error) { return e.InsertMany(ctx, part) })
	})
	for _, a := range answers {
		if wrong, ok := errors.AsType[*engine.InsertError](a.err); ok {
			wrong.Index = parts[a.place][wrong.Index]
		}
		for i, n := range parts[a.place] {
			if done[n].Err = a.err; a.err == nil {
				done[n].Inserted = a.value[i]
			}
		}
	}
	return done, errors.Join(failed(answers)...)
}

// Signal puts a message into the inbox of a live instance, as [engine.Engine.Signal] does: by id at
// the id's place, by key at the key's. A child is at the place of its parent, so Signal finds it by
// key only if the key belongs to that place, e.g. by a tag that it shares with its parent's key.
func (c *Cluster) Signal(ctx context.Context, to fsm.Target, m fsm.Message) (engine.Delivery, error) {
	return on(ctx, c, to, engine.ErrNoTarget, func(e *engine.Engine) (engine.Delivery, error) { return e.Signal(ctx, to, m) })
}
