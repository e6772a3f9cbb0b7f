package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// AtVisit is an option of Edit and Rewind. The verb applies only at this visit: at the state that
// the caller has seen, since each progress moves the visit.
func AtVisit(n int64) VerbOption { return func(o *order) { o.visit = &n } }

// NewKeys is an option of Edit. It moves the visit, and so the idempotency keys of the step at
// which the instance stands: effects that an earlier attempt has begun are not recognised, and are
// done anew. An instance whose children join at this visit refuses it.
func NewKeys() VerbOption { return func(o *order) { o.NewKeys = true } }

// Changing is an option of a plan of VerbEdit, which needs it, or of VerbRewind: the change of the
// state of each instance of the plan.
func Changing(change fsm.Change) VerbOption { return func(o *order) { o.change = &change } }

// ToStep is an option of a plan of VerbRewind, which needs it: where all instances of the plan go
// on.
func ToStep(name string) VerbOption { return func(o *order) { o.to = &name } }

// Edit changes the state of an instance that has not ended as done and of which no step executes:
// a compare-and-set. It reads the state, changes the copy, without a lock, and stores it if visit
// and state still equal the copy's; else, and if the instance is claimed just now, it returns a
// *[ConflictError]. The audit has the state before and after, up to 8 KiB of each.
//
//	cheaper := Checkout.Change(func(o *Order) error { o.Cents = 4000; return nil })
//	_, err := eng.Admin().Edit(ctx, id, cheaper)
//
// All else stays: step, visit and with it the idempotency keys (see [NewKeys]), correlation and
// partition key, what it awaits, its children, its deadlines. A parked instance stays parked, and
// a failed one stays failed until Retry. To keep a runnable instance from being claimed meanwhile,
// pause it first.
//
// The error of a [fsm.Change] is returned, as part of a *[VerbError], and nothing is changed.
func (a *Admin) Edit(ctx context.Context, t fsm.Target, change fsm.Change, options ...VerbOption) (Changed, error) {
	return a.edit(ctx, t, VerbEdit, append([]VerbOption{Changing(change)}, options...))
}

// Rewind makes an instance go on at an earlier step, with a state that change makes of the one it
// has; the zero Change keeps it. It applies where Edit does, by the same compare-and-set. Earlier
// is a step from which the machine's definition leads to the one at which the instance stands, that
// step included. The definition is one of this engine's Config, else the stored one.
//
// It is a progress to that step: the visit moves, so that the idempotency keys are new, and
// attempts and crashes count from 0. The instance is runnable at once, unless it is paused. It
// awaits nothing any more; the signals in its inbox stay. Children that it waited for go on, and
// join nothing any more: cancel them first, if they should not. Its deadline and both keys stay. A
// failed instance runs again as after Retry.
//
// Errors: also a *[DuplicateError] where the instance had failed and another one has its key by
// now.
func (a *Admin) Rewind(ctx context.Context, t fsm.Target, step string, change fsm.Change, options ...VerbOption) (Changed, error) {
	return a.edit(ctx, t, VerbRewind, append([]VerbOption{ToStep(step), Changing(change)}, options...))
}

func (a *Admin) edit(ctx context.Context, t fsm.Target, verb Verb, options []VerbOption) (changed Changed, err error) {
	defer a.engine.explain(ctx, toOperate, &err)
	o, address, err := a.orderOf(ctx, t, verb, options)
	if err != nil {
		return Changed{}, err
	}
	row, err := a.engine.get(ctx, address)
	if err == nil {
		err = o.sees(row, address)
	}
	if err != nil {
		return Changed{}, err
	}
	if o.Seen != nil && o.seen != row.ID {
		return Changed{}, &VerbError{verb, "IfUnchanged", fmt.Errorf("it saw instance %d, but the target is instance %d", o.seen, row.ID)}
	}
	if o.Edits = map[int64]store.Edit{}; canEdit(row.Status) {
		if o.Edits[int64(row.ID)], err = a.prepare(ctx, o, row); err != nil {
			return Changed{}, err
		}
	}
	done, err := a.patiently(ctx, []int64{int64(row.ID)}, o)
	if err != nil {
		return Changed{}, err
	}
	return a.told(verb, row.ID, done)
}

// canEdit reports whether it is worth to change the state: what the store refuses by the status
// needs no change to be refused.
func canEdit(s fsm.Status) bool { return s != fsm.StatusExecuting && s != fsm.StatusDone }

// prepare decides what becomes of one instance, from a copy of it.
func (a *Admin) prepare(ctx context.Context, o *order, row fsm.RawInstance) (store.Edit, error) {
	verb := Verb(o.Verb)
	if o.visit != nil && *o.visit != row.Visit {
		return store.Edit{}, &ConflictError{Verb: verb, ID: row.ID, Status: row.Status, Err: fmt.Errorf("it is at visit %d, not at %d", row.Visit, *o.visit)}
	}
	e := store.Edit{Version: row.Version, Visit: row.Visit, Old: row.State, New: row.State, Redacted: a.engine.config.Redact != nil}
	e.Shown = a.shown(row.Machine, row.State)
	e.Becomes = e.Shown
	if o.to != nil {
		e.To = *o.to
		if err := a.earlier(ctx, o, row); err != nil {
			return e, err
		}
	}
	if o.change == nil {
		return e, nil
	}
	state, err := hidden.Change(*o.change, a.engine.env, row)
	if err != nil {
		return e, &VerbError{verb, "change", err}
	}
	e.New, e.Becomes = state, a.shown(row.Machine, state)
	return e, nil
}

// shown returns what the audit may keep of a state, if the Config redacts: nil for nothing, also
// where Redact panics or returns what Postgres would refuse.
func (a *Admin) shown(machine string, state json.RawMessage) (kept json.RawMessage) {
	redact := a.engine.config.Redact
	if redact == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			kept = nil
		}
	}()
	return step.Redacted(redact, machine, state)
}

// earlier returns an error unless the step of a Rewind leads to the one at which an instance
// stands.
func (a *Admin) earlier(ctx context.Context, o *order, row fsm.RawInstance) error {
	wrong := func(format string, args ...any) error {
		return &VerbError{VerbRewind, "step", fmt.Errorf(format, args...)}
	}
	name := fmt.Sprintf("%s/%d", row.Machine, row.Version)
	graph, known := o.graphs[name]
	if !known {
		for _, d := range a.engine.config.Machines {
			if g := fsm.DiagramOf(d); g.Machine == row.Machine && g.Version == row.Version {
				graph, known = g, true
			}
		}
	}
	if !known {
		stored, err := a.engine.definitions(ctx, row.Machine, row.Version)
		if err != nil {
			return err
		}
		if len(stored) == 0 {
			return wrong("no definition of machine %.80q version %d is stored: start an engine that has it", row.Machine, row.Version)
		}
		graph = stored[0].Graph
	}
	o.graphs[name] = graph
	switch to := *o.to; {
	case !graph.Has(to):
		return wrong("machine %.80q version %d has no step %.80q", row.Machine, row.Version, to)
	case !graph.Leads(to, row.Step):
		return wrong("%.80q does not lead to %.80q, where instance %d stands", to, row.Step, row.ID)
	}
	return nil
}

// checkEdit checks the options of Edit and Rewind.
func (o *order) checkEdit() error {
	verb := Verb(o.Verb)
	edits, rewinds := verb == VerbEdit, verb == VerbRewind
	wrong := func(option string, err string) error { return &VerbError{verb, option, errors.New(err)} }
	switch {
	case o.visit != nil && !edits && !rewinds:
		return wrong("AtVisit", "an option of Edit and Rewind only")
	case o.NewKeys && !edits:
		return wrong("NewKeys", "an option of Edit only: Rewind begins a new visit anyway")
	case o.change != nil && !edits && !rewinds:
		return wrong("Changing", "an option of Edit and Rewind only")
	case o.change == nil && edits:
		return wrong("Changing", "none: give Changing, with the change of the state")
	case o.to != nil && !rewinds:
		return wrong("ToStep", "an option of Rewind only")
	case o.to == nil && rewinds:
		return wrong("ToStep", "none: give ToStep, the step at which they go on")
	}
	if o.to != nil {
		if err := checkName(*o.to, fsm.MaxNameBytes); err != nil {
			return &VerbError{verb, "step", err}
		}
	}
	o.graphs = map[string]fsm.Diagram{}
	return nil
}

// prepare decides what to make of each instance of a plan's batch. It counts the instances that
// cannot be changed, and returns the others.
func (b *bulk) prepare(ctx context.Context, ids []int64) ([]int64, error) {
	rows, err := b.admin.engine.reads.GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	b.applied.Skipped += int64(len(ids) - len(rows)) // they are gone
	b.order.Edits = make(map[int64]store.Edit, len(rows))
	ready := make([]int64, 0, len(rows))
	for i := range rows {
		if !canEdit(rows[i].Status) {
			b.applied.Skipped++
			continue
		}
		e, err := b.admin.prepare(ctx, b.order, rows[i])
		switch conflict := (*ConflictError)(nil); {
		case errors.As(err, &conflict):
			b.applied.Skipped++
		case err != nil && !isAnswer(err):
			return nil, err
		case err != nil:
			b.failed(rows[i].ID, err)
		default:
			b.order.Edits[int64(rows[i].ID)] = e
			ready = append(ready, int64(rows[i].ID))
		}
	}
	return ready, nil
}
