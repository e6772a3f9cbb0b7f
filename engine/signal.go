package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/work"
	"github.com/gendurable/gendurable/signal"
)

// Delivery says what became of a signal. A duplicate inserted nothing and woke no instance.
type Delivery = signal.Delivery

// Signal puts a message into the inbox of a live instance, by id or by the correlation key that it
// occupies, and wakes it if it awaits that name. A message whose dedup key was delivered to this
// instance before, consumed or not, is no error but a Duplicate.
//
// Signal repeats what met a transient fault of Postgres until ctx ends, and waits as long for a
// target whose row another transaction keeps locked: give ctx a deadline. Where the connection
// breaks during the commit, Signal does not repeat a message without a dedup key, and returns
// ErrUnknown. It repeats a message with one, and may then report it as the duplicate of itself.
//
// If a message has KeepFor and no instance occupies the key, the message is kept for the first
// instance that will: its insert puts the message into the inbox before a step can run. At most
// 1,000 messages are kept for a key, and no more than Limits.Inbox. Once expired, they no longer
// count as Duplicates.
//
// Errors: ErrNoTarget if there is no such instance or it has ended; ErrInboxFull, also where too
// many are kept; ErrTooLarge for a payload over the limit; ErrUnknown.
func (w writer) Signal(ctx context.Context, to fsm.Target, m fsm.Message) (d Delivery, err error) {
	call := func() VerbCall { return VerbCall{Verb: "signal", Signal: m.Name(), To: to} }
	err = w.around(ctx, call, func(ctx context.Context) ([]fsm.ID, error) {
		var err error
		d, err = w.send(ctx, to, m)
		if d.Kept {
			return nil, err
		}
		return []fsm.ID{d.To}, err
	})
	return d, err
}

func (w writer) send(ctx context.Context, to fsm.Target, m fsm.Message) (_ Delivery, err error) {
	erased, err := w.message(ctx, to, m)
	if err != nil {
		return Delivery{}, err
	}
	if erased.Keep > 0 && !w.sender.Once {
		defer w.engine.explain(ctx, slices.Concat(toWrite, toKeep), &err)
	}
	sender := *w.sender
	if !sender.Once && w.engine.worker != nil {
		claiming := &claimingInboxes{Store: w.engine.store, worker: w.engine.worker}
		defer claiming.over()
		sender.Inboxes = claiming
	}
	d, err := sender.Send(ctx, to, erased)
	if err != nil {
		return Delivery{}, err
	}
	if d.Runnable {
		w.wake(d.Queue)
	}
	return Delivery{To: fsm.ID(d.Target), Duplicate: d.Duplicate, Kept: d.Kept}, nil
}

// claimingInboxes are the inboxes for the attempts of one signal. An attempt claims the instance
// that it wakes if the worker of this process has a free slot for it, and would claim it at once.
type claimingInboxes struct {
	*store.Store
	worker *work.Worker
	doubt  []string // queues in which an attempt may have claimed, without an answer
}

// Deliver delivers with a slot in each idle queue, or as usual.
func (i *claimingInboxes) Deliver(ctx context.Context, to store.Address, m *step.Signal, inbox int) (store.Delivery, error) {
	slots := i.worker.ReserveWoken()
	if slots == nil {
		return i.Store.Deliver(ctx, to, m, inbox)
	}
	waker := slots.Waker()
	d, woken, err := i.DeliverClaiming(ctx, to, m, inbox, waker)
	slots.Settle(woken.Claims, woken.Err)
	if store.Unknown(woken.Err) {
		i.doubt = waker.Queues
	}
	if store.IsLockTimeout(err) { // it has waited briefly, since slots waited with it
		return i.Store.Deliver(ctx, to, m, inbox)
	}
	return d, err
}

// over ends the attempts. One without an answer may have taken effect only now, before a later one
// found out.
func (i *claimingInboxes) over() {
	for _, queue := range i.doubt {
		i.worker.Doubt(queue)
	}
}

// SignalOrInsert delivers a message to the live instance that occupies the spec's key, as Signal
// does, or inserts the spec with the message in its inbox. It does one or the other, also beside
// other inserts and signals of the key. Duplicate says that there was an occupant; a dedup key
// that the occupant knows is no error. The spec needs a key, in any scope but fsm.ScopeNone.
//
// SignalOrInsert repeats transient faults as Signal does. It recognises its new instance where the
// answer to the insertion was lost.
//
// Errors: the errors of Signal, and a *[InsertError] if the spec is wrong: a policy or a window
// is, since the signal goes to the occupant whatever it does. Where the occupant has ended and its
// scope keeps the key, the error is ErrNoTarget and a *[DuplicateError] in one.
func (w writer) SignalOrInsert(ctx context.Context, spec fsm.Spec, m fsm.Message) (done Inserted, err error) {
	call := func() VerbCall {
		return VerbCall{Verb: "signal_or_insert", Machine: spec.Options().Machine, Specs: 1, Signal: m.Name()}
	}
	err = w.around(ctx, call, func(ctx context.Context) ([]fsm.ID, error) {
		var err error
		done, err = w.sendOrInsert(ctx, spec, m)
		return idsOf(done), err
	})
	return done, err
}

func (w writer) sendOrInsert(ctx context.Context, spec fsm.Spec, m fsm.Message) (Inserted, error) {
	x, err := w.erase(ctx, 0, spec)
	if err != nil {
		return Inserted{}, err
	}
	if err := addressed(x); err != nil {
		return Inserted{}, err
	}
	if err := unruled(x); err != nil {
		return Inserted{}, err
	}
	erased, err := w.message(ctx, fsm.Key(x.Key), m)
	if err != nil {
		return Inserted{}, err
	}
	d, err := w.sender.SendOrInsert(ctx, x, erased)
	if ended, ok := errors.AsType[*store.EndedError](err); ok {
		return Inserted{}, fmt.Errorf("%w: %w", ErrNoTarget, &DuplicateError{Key: fsm.Key(x.Key), Occupant: fsm.ID(ended.Occupant)})
	}
	if err != nil {
		return Inserted{}, err
	}
	if d.Runnable || d.Inserted && w.engine.soon(x) {
		w.wake(d.Queue)
	}
	return Inserted{ID: fsm.ID(d.Target), Duplicate: !d.Inserted}, nil
}

// unruled refuses a spec whose insert depends on more than whether its key is free.
func unruled(spec *step.Spec) error {
	switch {
	case spec.Conflict != step.ConflictRefuse:
		return &InsertError{Field: "conflict", Err: errors.New("only Insert, InsertMany and GetOrInsert take a policy but ConflictRefuse")}
	case spec.Window.Kind != "":
		return &InsertError{Field: "window", Err: errors.New("only Insert, InsertMany and GetOrInsert take a window")}
	}
	return nil
}

// message passes a message through middleware and validation.
func (w writer) message(ctx context.Context, to fsm.Target, m fsm.Message) (*step.Signal, error) {
	m, err := w.engine.signalMiddleware(ctx, to, m)
	if err != nil {
		return nil, fmt.Errorf("middleware of signal %.80q: %w", m.Name(), err)
	}
	erased, err := hidden.Signal(m, w.engine.env)
	if err != nil {
		return nil, err
	}
	erased.Trace = w.engine.env.Trace(ctx)
	return erased, nil
}
