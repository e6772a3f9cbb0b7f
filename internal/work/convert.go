package work

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// An instance of an older version that a migration brings to a registered one is converted in
// memory, in its slot, before its step runs: nothing is written for it alone, and the fence stays
// the claim's. The first outcome writes version, step and state, always by the general commit
// statement: the narrower ones would leave the row with the old version, and be right only about a
// part of it. Until then the row is as it was: a process that dies, or a release, has changed
// nothing, and a retried execution converts again.
//
// No handler sees a conversion fail, since after a bad deploy the handlers would fail everything.
// The claim is given back, and the instance paused as it was.

// converted converts the claim if it is of an older version. It reports false if that failed: then
// the claim is to be given back.
func (x *execution) converted() bool {
	if len(x.route.chain) == 0 || x.f.claim.Migrated != 0 {
		return true
	}
	x.phase = converting
	if _, failed := x.guarded(x.convert); failed != nil {
		x.unconverted(failed)
		return false
	}
	x.phase = fresh
	return true
}

func (x *execution) convert() (*step.Commit, error) {
	if err := x.complete(x.f.ctx); err != nil {
		return nil, err
	}
	own := *x.f.claim
	for _, one := range x.route.chain {
		state, err := one.Convert(own.Env, own.State)
		if err != nil {
			return nil, fmt.Errorf("convert version %d to %d: %w", one.From, one.To, err)
		}
		own.State = state
	}
	own.Migrated, own.Version, own.Step = own.Version, x.m.Version, x.route.step
	x.f.claim = &own
	return &step.Commit{}, nil
}

// unconverted notes that the state cannot be converted, unless the engine itself has ended the
// flight.
func (x *execution) unconverted(failed *failure) {
	c := x.f.claim
	if x.failed = failed; x.f.lost() != nil || x.f.expired() {
		return // it is given back as it was; the next claim, or the sweep of deadlines, goes on
	}
	x.fault = step.SanitizeError(fmt.Errorf("%s%d of machine %s, paused as it was: %w", step.Unconverted, x.m.Version, c.Machine, failed.safe))
	x.log.Error("an instance cannot be converted to the newer version of its machine, and is paused as it was",
		slog.Int64("instance", c.ID), slog.String("machine", c.Machine), slog.Int("version", c.Version), slog.String("step", c.Step),
		slog.Any("error", failed.safe))
}

// entry returns an outcome to commit, and how long its step took. The outcome of a converted claim,
// of any kind, takes the row along to the newer version.
func (x *execution) entry(o *step.Commit, took time.Duration) store.Entry {
	if c := x.f.claim; c.Migrated != 0 && o.Version == 0 {
		own := *o
		own.Version, own.Step = c.Version, cmp.Or(o.Step, c.Step)
		if own.State == nil {
			own.State = c.State
		}
		o = &own
	}
	return store.Entry{Claim: x.f.claim, Commit: o, Keep: x.mayRunAhead(o), Record: x.record(o, took)}
}
