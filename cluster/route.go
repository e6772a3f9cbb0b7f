package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
)

// passOver is how long inserts without a key pass over a place that did not answer.
const passOver = 5 * time.Second

// startOfTurns returns the place at which a process begins its turns, so that many short processes
// do not all begin at place 0.
func startOfTurns(places int) uint64 { return rand.Uint64N(uint64(places)) } //nolint:gosec // no secret

// next returns the place whose turn it is. It skips places that did not answer lately, unless that
// is all of them.
func (c *Cluster) next() *place {
	now := time.Now().UnixNano()
	var p *place
	for range c.places {
		p = c.places[c.turn.Add(1)%uint64(len(c.places))]
		if p.passUntil.Load() < now {
			break
		}
	}
	return p
}

// placing is a key that decides the place of a spec.
type placing struct{ field, key string }

// placings returns the keys of a spec that decide its place, the strongest first.
func placings(spec fsm.Spec) []placing {
	o := spec.Options()
	var keys []placing
	for _, k := range []placing{{"key", string(o.Key)}, {"partition_key", o.PartitionKey}, {"window", string(o.Window.Key)}} {
		if k.key != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// placed returns the place of a spec by its keys, or -1 if it has none. All keys of a spec must
// belong to one place, since only the tables of a key's place guard it.
//
// Errors: a *[engine.InsertError] that wraps ErrElsewhere.
func placed(spec fsm.Spec, index, places int) (int, error) {
	at := -1
	var first placing
	for _, k := range placings(spec) {
		switch its := PlaceOf(k.key, places); {
		case at < 0:
			at, first = its, k
		case its != at:
			return 0, &engine.InsertError{Index: index, Field: k.field, Err: fmt.Errorf("%w: %.80q is of place %d, but the %s %.80q of place %d; "+
				"give both one tag, as in %q", ErrElsewhere, k.key, its, first.field, first.key, at, first.key+"{"+tagOf(k.key)+"}")}
		}
	}
	return at, nil
}

type callKey struct{}

// guard returns the middleware by which the engine of a place refuses inserts that belong to
// another place: the host used the wrong engine, or middleware changed a key. It checks only the
// verbs of hosts. Children belong to the place of their parent, and inserts of a schedule to the
// place of the schedule.
func guard(index, places int) engine.Middleware {
	return engine.Middleware{
		Call: func(ctx context.Context, _ *engine.VerbCall, run func(context.Context) error) error {
			return run(context.WithValue(ctx, callKey{}, index))
		},
		Insert: func(ctx context.Context, spec fsm.Spec) (fsm.Spec, error) {
			if at, called := ctx.Value(callKey{}).(int); !called || at != index {
				return spec, nil
			}
			at, err := placed(spec, 0, places)
			if err == nil && at >= 0 && at != index {
				err = fmt.Errorf("%w: %.80q is of place %d, and this is the engine of place %d", ErrElsewhere, placings(spec)[0].key, at, index)
			}
			return spec, err
		},
	}
}

// target returns the place of an address. absent is the error to wrap if there is no such place.
func (c *Cluster) target(t fsm.Target, absent error) (*place, error) {
	switch t := t.(type) {
	case fsm.Key:
		return c.places[c.PlaceOf(string(t))], nil
	case fsm.ID:
		if e := PlaceOfID(t); t > 0 && e < len(c.places) {
			return c.places[e], nil
		}
		return nil, c.noPlace(absent, t)
	default:
		return nil, fmt.Errorf("%w: no target", absent)
	}
}

const (
	readyLeast = 10 * time.Millisecond
	readyMost  = time.Second
)

// ready returns once the record of the place is known to be right, and at once from then on. It
// waits out an outage until ctx ends, as all verbs do.
func (p *place) ready(ctx context.Context) error { return p.persist(ctx, p.check) }

// Reach returns nil once a place has answered and its record is known to be right, and a
// *[PlaceError] if that takes longer than Patience. Once the record has been read, Reach sends one
// statement, which reads no table.
func (c *Cluster) Reach(ctx context.Context, place int) error {
	if place < 0 || place >= len(c.places) {
		return fmt.Errorf("%w: place %d, and there are %d", engine.ErrNotFound, place, len(c.places))
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	p := c.places[place]
	if err := c.there(ctx, p); err != nil {
		return err
	}
	return p.ready(ctx)
}

// there returns nil once the place has answered, or its error after Patience.
func (c *Cluster) there(ctx context.Context, p *place) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	return p.persist(ctx, func(ctx context.Context) error {
		var one int
		return p.db.QueryRow(ctx, `SELECT 1`).Scan(&one)
	})
}

// persist repeats a call until it gets an answer or ctx ends.
func (p *place) persist(ctx context.Context, once func(context.Context) error) error {
	for n := 1; ; n++ {
		err := once(ctx)
		if err == nil || isRecord(err) {
			return p.at(err)
		}
		if !pace.Sleep(ctx, pace.Backoff(n, readyLeast, readyMost)) {
			return p.at(fmt.Errorf("%w; given up after %d attempts: %w", err, n, context.Cause(ctx)))
		}
	}
}

// on calls a verb of the engine at an address.
func on[T any](ctx context.Context, c *Cluster, t fsm.Target, absent error, verb func(*engine.Engine) (T, error)) (out T, err error) {
	p, err := c.target(t, absent)
	if err != nil {
		return out, err
	}
	return in(ctx, p, verb)
}

// in calls a verb of the engine of a place.
func in[T any](ctx context.Context, p *place, verb func(*engine.Engine) (T, error)) (out T, err error) {
	if err := p.ready(ctx); err != nil {
		return out, err
	}
	out, err = verb(p.engine)
	return out, p.at(err)
}

// answer is what one of several places has said.
type answer[T any] struct {
	place *place
	value T
	err   error // a *PlaceError, or what is wrong with the input
}

// each calls a verb at several places side by side, and returns their answers in the order of the
// places. Each has Patience. For wrong input the error is the same as with one engine.
func each[T any](ctx context.Context, c *Cluster, places []*place, verb func(context.Context, *place) (T, error)) ([]answer[T], error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	return input(side(places, func(p *place) (T, error) {
		return in(ctx, p, func(*engine.Engine) (T, error) { return verb(ctx, p) })
	}))
}

// eachLong is each for a verb that may take longer than Patience where a place is there: it is
// asked before whether it is.
func eachLong[T any](ctx context.Context, c *Cluster, places []*place, verb func(*engine.Engine) (T, error)) ([]answer[T], error) {
	return input(side(places, func(p *place) (out T, err error) {
		if err := c.there(ctx, p); err != nil {
			return out, err
		}
		return in(ctx, p, verb)
	}))
}

// input returns what is wrong with the input, as it is to each place, or the answers.
func input[T any](answers []answer[T]) ([]answer[T], error) {
	for _, a := range answers {
		if e, ok := a.err.(*PlaceError); ok && isInput(e) { //nolint:errorlint // in has made it
			return nil, e.Err
		}
	}
	return answers, nil
}

// side calls a function for several places side by side.
func side[T any](places []*place, call func(*place) (T, error)) []answer[T] {
	answers := make([]answer[T], len(places))
	over := make(chan struct{}, len(places))
	for i, p := range places {
		go func() {
			defer func() { over <- struct{}{} }()
			answers[i].place = p
			answers[i].value, answers[i].err = call(p)
		}()
	}
	for range places {
		<-over
	}
	return answers
}

// failed returns the errors of answers.
func failed[T any](answers []answer[T]) (errs []error) {
	for _, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errs
}
