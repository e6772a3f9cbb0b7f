package cluster

import (
	"context"
	"errors"
	"slices"
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
	done, at := make([]Inserted, len(specs)), make([]*place, len(specs))
	for i, spec := range specs {
		n, err := placed(spec, i, len(c.places))
		if err != nil {
			return nil, err
		}
		if at[i] = c.places[max(0, n)]; n < 0 {
			at[i] = c.next()
		}
		done[i].Place = at[i].index
	}
	err := parted(ctx, c, specs, at,
		func(e *engine.Engine, part []fsm.Spec) ([]engine.Inserted, error) { return e.InsertMany(ctx, part) },
		func(i int, in engine.Inserted, err error) { done[i].Inserted, done[i].Err = in, err })
	return done, err
}

// parted calls a verb that takes many at the place of each, all places side by side. It hands on
// what becomes of each, by its index in the whole, and returns the errors of the places. It
// leaves out elements without a place.
func parted[In, Out any](ctx context.Context, c *Cluster, all []In, at []*place, verb func(*engine.Engine, []In) ([]Out, error),
	became func(i int, out Out, err error),
) error {
	parts, of := make([][]In, len(c.places)), make([][]int, len(c.places))
	var concerned []*place
	for i, p := range at {
		if p == nil {
			continue
		}
		if len(parts[p.index]) == 0 {
			concerned = append(concerned, p)
		}
		parts[p.index], of[p.index] = append(parts[p.index], all[i]), append(of[p.index], i)
	}
	slices.SortFunc(concerned, func(a, b *place) int { return a.index - b.index })
	answers := side(concerned, func(p *place) ([]Out, error) {
		return in(ctx, p, func(e *engine.Engine) ([]Out, error) { return verb(e, parts[p.index]) })
	})
	for _, a := range answers {
		whole := of[a.place.index]
		if wrong, ok := errors.AsType[*engine.InsertError](a.err); ok {
			wrong.Index = whole[wrong.Index]
		}
		if wrong, ok := errors.AsType[*engine.SignalError](a.err); ok {
			wrong.Index = whole[wrong.Index]
		}
		for n, i := range whole {
			var out Out
			if a.err == nil {
				out = a.value[n]
			}
			became(i, out, a.err)
		}
	}
	return errors.Join(failed(answers)...)
}

// Signal puts a message into the inbox of a live instance, as [engine.Engine.Signal] does: by id at
// the id's place, by key at the key's. A child is at the place of its parent, so Signal finds it by
// key only if the key belongs to that place, e.g. by a tag that it shares with its parent's key.
func (c *Cluster) Signal(ctx context.Context, to fsm.Target, m fsm.Message) (engine.Delivery, error) {
	return on(ctx, c, to, engine.ErrNoTarget, func(e *engine.Engine) (engine.Delivery, error) { return e.Signal(ctx, to, m) })
}

// SignalMany delivers each message at the place of its target, as Signal does: one transaction per
// place, all places side by side, with at most [engine.MaxSignals] messages for each. It returns
// one Signalled per letter, in input order. A place that refuses or does not answer fails only its
// own letters: they have an Err, and the returned error joins the *[PlaceError] of each such place.
// SignalMany waits for a place until ctx ends.
//
// A fault of a letter refuses all letters of its place; the [engine.SignalError] has the index in
// the whole call.
func (c *Cluster) SignalMany(ctx context.Context, letters []engine.Letter) ([]engine.Signalled, error) {
	if len(letters) == 0 {
		return nil, nil
	}
	done, at := make([]engine.Signalled, len(letters)), make([]*place, len(letters))
	for i, l := range letters {
		at[i], done[i].Err = c.target(l.To, engine.ErrNoTarget)
	}
	err := parted(ctx, c, letters, at,
		func(e *engine.Engine, part []engine.Letter) ([]engine.Signalled, error) {
			return e.SignalMany(ctx, part)
		},
		func(i int, one engine.Signalled, err error) {
			if done[i] = one; err != nil {
				done[i].Err = err
			}
		})
	return done, err
}
