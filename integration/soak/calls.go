package soak

import (
	"context"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// insert inserts an instance, and logs the result. If ok is false, its key is occupied, or it is
// unknown whether it was inserted.
func (u *undertaking) insert(ctx context.Context, spec fsm.Spec) (id fsm.ID, ok bool) {
	options := spec.Options()
	label := spec.State().(work).Label //nolint:forcetypeassert // every state is a work
	for ctx.Err() == nil {
		calling, cancel := context.WithTimeout(ctx, patience)
		id, err := u.eng.Insert(calling, spec)
		cancel()
		taken, occupied := errors.AsType[*engine.DuplicateError](err)
		e := event{Label: label, Key: string(options.Key), ID: int64(id)}
		switch {
		case err == nil:
			e.Kind = evAccepted
			u.log.write(e)
			return id, true
		case occupied && u.mine(ctx, taken.Occupant, label):
			// An earlier call of ours took effect, and its answer was lost.
			e.Kind, e.ID = evAccepted, int64(taken.Occupant)
			u.log.write(e)
			return taken.Occupant, true
		case occupied:
			e.Kind, e.Target = evDuplicate, int64(taken.Occupant)
			u.log.write(e)
			return 0, false
		case options.Key == "" || options.Scope == fsm.ScopeNone:
			// Without a unique key, an insert cannot be told from its repetition.
			e.Kind, e.Detail = evUnknown, err.Error()
			u.log.write(e)
			return 0, false
		}
		u.again(ctx, "insert", err)
	}
	return 0, false
}

// mine reports whether an instance is the one with this label.
func (u *undertaking) mine(ctx context.Context, id fsm.ID, label string) bool {
	for ctx.Err() == nil {
		calling, cancel := context.WithTimeout(ctx, patience)
		i, err := job.Get(calling, anyMachine{u.eng}, id)
		cancel()
		if err == nil {
			return i.State.Label == label
		}
		u.again(ctx, "get", err)
	}
	return false
}

// anyMachine reads instances of all machines as if they were jobs, since all states have one type.
type anyMachine struct{ *engine.Engine }

func (a anyMachine) Get(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	i, err := a.Engine.Get(ctx, of)
	i.Machine = job.Name()
	return i, err
}

// insertMany inserts instances without keys.
func (u *undertaking) insertMany(ctx context.Context, specs []fsm.Spec) (ids []fsm.ID, ok bool) {
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done, err := u.eng.InsertMany(calling, specs)
	if err != nil {
		u.log.write(event{Kind: evUnknown, Label: u.name, Detail: err.Error()})
		return nil, false
	}
	for i, d := range done {
		label := specs[i].State().(work).Label //nolint:forcetypeassert // every state is a work
		u.log.write(event{Kind: evAccepted, ID: int64(d.ID), Label: label})
		ids = append(ids, d.ID)
	}
	return ids, true
}

// deliver sends the signal of this index, of those that a target wants, until it is acknowledged.
// Some of those with a dedup key are sent again. If ok is false, the client's time is over.
func (u *undertaking) deliver(ctx context.Context, to fsm.Target, label string, index int, deduped bool) bool {
	dedup := ""
	if deduped {
		dedup = fmt.Sprintf("d%d", index)
	}
	repeats := 0
	if deduped && u.IntN(4) == 0 {
		repeats = 1 + u.IntN(2)
	}
	for try := 0; ctx.Err() == nil; try++ {
		tag := fmt.Sprintf("%s/%d#%d", label, index, try)
		err := u.signal(ctx, to, ping{index, tag}, dedup)
		u.refused = u.refused || errors.Is(err, engine.ErrNoTarget)
		switch {
		case errors.Is(err, engine.ErrNoTarget) && (try > 0 || deduped):
			return true // it has the signal, from an attempt that got no answer, ours or the engine's
		case errors.Is(err, engine.ErrNoTarget):
			u.log.write(event{Kind: evWrong, Label: label, Tag: tag, Detail: "no target, though it wants this signal"})
			return false
		case err != nil:
			u.again(ctx, "signal", err)
		case repeats == 0:
			return true
		default:
			repeats--
		}
	}
	return false
}

// stray sends a signal that no step needs.
func (u *undertaking) stray(ctx context.Context, to fsm.Target) {
	tag := fmt.Sprintf("stray:%s/%d#%v", u.name, u.IntN(1_000_000), to)
	if err := u.signal(ctx, to, ping{Tag: tag}, ""); err != nil && !errors.Is(err, engine.ErrNoTarget) {
		u.again(ctx, "stray signal", err)
	}
}

// signal sends one signal and logs the result.
func (u *undertaking) signal(ctx context.Context, to fsm.Target, p ping, dedup string) error {
	d, err := u.sent(ctx, to, p, dedup)
	e := event{Kind: evAcked, Label: u.name, Tag: p.Tag, Dedup: dedup, Target: int64(d.To), Duplicate: d.Duplicate}
	switch {
	case errors.Is(err, engine.ErrNoTarget):
		e.Kind = evRefused
	case err != nil:
		e.Kind, e.Detail = evUnknown, err.Error()
	}
	u.log.write(e)
	return err
}

func (u *undertaking) sent(ctx context.Context, to fsm.Target, p ping, dedup string) (engine.Delivery, error) {
	if u.IntN(8) == 0 {
		return u.signalWithin(ctx, to, p, dedup)
	}
	m := pings.With(p)
	if dedup != "" {
		m = m.DedupKey(dedup)
	}
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return u.eng.Signal(calling, to, m)
}
