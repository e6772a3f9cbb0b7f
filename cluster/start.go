package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pace"
)

const (
	lateLeast = 250 * time.Millisecond
	lateMost  = 10 * time.Second
)

// Start reads the records of all places, and then starts their engines side by side. It starts none
// if a record is wrong. A place that cannot be started, because it is down, is not migrated or
// lacks rights, does not hold up the others: Start logs it, the cluster tries it again until it
// starts or Stop is called, and [Cluster.Pending] names it meanwhile. A client need not be started.
//
// Start fails if no place can be started at all, and may then be called again.
//
// Errors: the *[PlaceError]s of the places, joined (see [PlaceErrors]): ErrPlaces,
// ErrUninitialised, or why no place started; engine.ErrStarted, engine.ErrStopped.
func (c *Cluster) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.life {
	case engine.StateStarted:
		return engine.ErrStarted
	case engine.StateDraining, engine.StateStopped:
		return engine.ErrStopped
	case engine.StateCreated:
	}
	if err := c.refuseRecords(ctx); err != nil {
		return err
	}
	started := side(c.places, func(p *place) (struct{}, error) { return struct{}{}, c.start(ctx, p) })
	errs := failed(started)
	if len(errs) == len(c.places) {
		return errors.Join(errs...)
	}
	c.life = engine.StateStarted
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = stop
	for _, a := range started {
		if a.err != nil {
			c.complain(ctx, a.place, a.err)
			c.pending[a.place.index] = a.err
			c.late.Go(func() { c.startLate(working, a.place) })
		}
	}
	return nil
}

// refuseRecords returns the faults of the records that it can read.
func (c *Cluster) refuseRecords(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	var errs []error
	for _, a := range side(c.places, func(p *place) (struct{}, error) { return struct{}{}, p.check(ctx) }) {
		if errors.Is(a.err, ErrPlaces) || errors.Is(a.err, ErrUninitialised) {
			errs = append(errs, a.place.at(a.err))
		}
	}
	return errors.Join(errs...)
}

// startTime bounds the start of an engine at a place that answers.
const startTime = time.Minute

// start starts the engine of a place, once the place answers and its record is right.
func (c *Cluster) start(ctx context.Context, p *place) error {
	impatient, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	if err := p.check(impatient); err != nil {
		return p.at(err)
	}
	ctx, cancel = context.WithTimeout(ctx, startTime)
	defer cancel()
	return p.at(p.engine.Start(ctx))
}

// startLate tries to start a place again until that succeeds or ctx ends.
func (c *Cluster) startLate(ctx context.Context, p *place) {
	for n := 1; pace.Sleep(ctx, pace.Backoff(n, lateLeast, lateMost)); n++ {
		err := c.start(ctx, p)
		if err != nil && n&(n-1) == 0 && ctx.Err() == nil {
			c.complain(ctx, p, err)
		}
		c.mu.Lock()
		if c.pending[p.index] = err; err == nil {
			delete(c.pending, p.index)
		}
		c.mu.Unlock()
		if err == nil {
			c.logger.LogAttrs(ctx, slog.LevelInfo, "started a place that could not be started before", slog.Int("place", p.index))
			return
		}
	}
}

func (c *Cluster) complain(ctx context.Context, p *place, err error) {
	c.logger.LogAttrs(ctx, slog.LevelWarn, "cannot start a place yet, trying again", slog.Int("place", p.index), slog.Any("error", err))
}

// Pending returns the places that Start has not been able to start yet, each with the latest
// reason. It does not list a place that goes down later: its engine waits for it.
func (c *Cluster) Pending() []*PlaceError {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*PlaceError
	for _, i := range slices.Sorted(maps.Keys(c.pending)) {
		list = append(list, PlaceErrors(c.pending[i])...)
	}
	return list
}

// State returns the state of the cluster. For the states of its engines see [Cluster.Engine].
func (c *Cluster) State() engine.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life
}

// Stop stops all places side by side, for good, each as [engine.Engine.Stop] does. A second call
// does nothing.
//
// Errors: the *[PlaceError] of each place that failed, joined.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.life = engine.StateDraining
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	c.late.Wait()
	errs := failed(side(c.places, func(p *place) (struct{}, error) { return struct{}{}, p.at(p.engine.Stop(ctx)) }))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(errs) == 0 {
		c.life = engine.StateStopped
		clear(c.pending)
	}
	return errors.Join(errs...)
}

// flushTime is the time that Run gives the commits after the last step.
const flushTime = 10 * time.Second

// Run starts the cluster, waits until ctx ends, and stops it with a new context, as
// [engine.Engine.Run] does for one engine.
func (c *Cluster) Run(ctx context.Context) error {
	if err := c.Start(ctx); err != nil {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			return err
		}
	} else {
		<-ctx.Done()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.drain)
	defer cancel()
	return c.Stop(ctx)
}
