package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/work"
)

// writer has the verbs that an Engine and a Tx share.
type writer struct {
	engine *Engine
	rows   func(ctx context.Context, specs []*step.Spec, by store.By) ([]store.Inserted, store.Effects, error) // inserts
	beside func(ctx context.Context, effects store.Effects)                                                    // told what an insert did to other instances
	sender *send.Sender
	within scope                  // of the caller; zero: all
	wake   func(queues ...string) // told where something became runnable
}

// Inserted says what became of a spec. ID is the new instance or, if one of the others is set, the
// instance that was there.
type Inserted struct {
	ID        fsm.ID `json:"id"`
	Duplicate bool   `json:"duplicate"` // nothing was inserted: ID occupies the key or has the window
	// Replaced: ID waited, and is now what the spec says; see fsm.ConflictReplace and
	// [fsm.Spec.Debounce].
	Replaced bool `json:"replaced,omitempty"`
	// Throttled: it is a Duplicate because of the spec's window; see [fsm.Spec.Throttle].
	Throttled bool      `json:"throttled,omitempty"`
	Until     time.Time `json:"until,omitzero"` // of a Throttled: when the window closes
}

// Insert inserts an instance and returns its id. Its machine need not be registered here.
//
// A transient fault of Postgres is repeated until ctx ends, as by all verbs: give ctx a deadline.
// Where the connection breaks during the commit, an instance without a key is not inserted again,
// and the error is ErrUnknown.
//
// A spec with a policy or a window (see [fsm.Spec.OnConflict], [fsm.Spec.Throttle] and
// [fsm.Spec.Debounce]) may replace an instance that waits. Then the id is that instance's.
//
// Errors: a *[DuplicateError] if its key is occupied; a *[ThrottledError] if its window is taken; a
// *[InsertError] if the spec is wrong, which wraps ErrTooLarge for a state over the limit.
func (w writer) Insert(ctx context.Context, spec fsm.Spec) (id fsm.ID, err error) {
	err = w.around(ctx, describeInsert("insert", spec), func(ctx context.Context) ([]fsm.ID, error) {
		var err error
		id, err = w.insertOne(ctx, spec)
		return []fsm.ID{id}, err
	})
	return id, err
}

func (w writer) insertOne(ctx context.Context, spec fsm.Spec) (fsm.ID, error) {
	erased, err := w.erase(ctx, 0, spec)
	if err != nil {
		return 0, err
	}
	done, err := w.insert(ctx, erased)
	if err != nil {
		return 0, err
	}
	if done[0].Throttled {
		return 0, &ThrottledError{Key: fsm.Key(erased.Window.Key), First: done[0].ID, Until: done[0].Until}
	}
	if done[0].Duplicate {
		return 0, &DuplicateError{Key: fsm.Key(erased.Key), Occupant: done[0].ID}
	}
	return done[0].ID, nil
}

// InsertMany inserts any number of instances, of at most Limits.OutcomeBytes together, in one
// transaction. It returns what became of each, in input order. An occupied key is no error but a
// Duplicate, and a window that is taken a Throttled; of two equal keys the first wins, unless the
// policy of the second says otherwise. A wrong spec, or one too many, refuses the whole call with a
// *[InsertError] before anything is sent.
func (w writer) InsertMany(ctx context.Context, specs []fsm.Spec) (done []Inserted, err error) {
	if len(specs) == 0 {
		return nil, nil
	}
	err = w.around(ctx, describeInsert("insert_many", specs...), func(ctx context.Context) ([]fsm.ID, error) {
		var err error
		done, err = w.insertAll(ctx, specs)
		return idsOf(done...), err
	})
	return done, err
}

func (w writer) insertAll(ctx context.Context, specs []fsm.Spec) ([]Inserted, error) {
	erased := make([]*step.Spec, len(specs))
	size := 0
	for i, spec := range specs {
		var err error
		if erased[i], err = w.erase(ctx, i, spec); err != nil {
			return nil, err
		}
		if size += erased[i].Bytes(); size > w.engine.env.Limits.OutcomeBytes {
			return nil, &InsertError{Index: i, Field: "state", Err: fmt.Errorf("over %d bytes together with those before it: %w",
				w.engine.env.Limits.OutcomeBytes, ErrTooLarge)}
		}
	}
	return w.insert(ctx, erased...)
}

// GetOrInsert inserts an instance unless its key is occupied, and says which. The spec needs a key,
// in any scope but fsm.ScopeNone.
//
// Errors: a *[InsertError] if the spec is wrong.
func (w writer) GetOrInsert(ctx context.Context, spec fsm.Spec) (done Inserted, err error) {
	err = w.around(ctx, describeInsert("get_or_insert", spec), func(ctx context.Context) ([]fsm.ID, error) {
		var err error
		done, err = w.getOrInsert(ctx, spec)
		return idsOf(done), err
	})
	return done, err
}

func (w writer) getOrInsert(ctx context.Context, spec fsm.Spec) (Inserted, error) {
	erased, err := w.erase(ctx, 0, spec)
	if err != nil {
		return Inserted{}, err
	}
	if err := addressed(erased); err != nil {
		return Inserted{}, err
	}
	done, err := w.insert(ctx, erased)
	if err != nil {
		return Inserted{}, err
	}
	return done[0], nil
}

// addressed refuses a spec whose key does not address the instance.
func addressed(spec *step.Spec) error {
	switch {
	case spec.Key == "":
		return &InsertError{Field: "key", Err: errors.New("none: the call finds the instance by its key, so give the spec a Key")}
	case spec.Scope == step.ScopeNone:
		return &InsertError{Field: "scope", Err: errors.New("ScopeNone, with which no instance holds the key, so the call cannot find one: use another scope")}
	}
	return nil
}

// erase passes the i-th spec of a call through middleware and validation.
func (w writer) erase(ctx context.Context, i int, spec fsm.Spec) (*step.Spec, error) {
	spec, err := w.engine.insertMiddleware(ctx, spec)
	if err != nil {
		return nil, &InsertError{Index: i, Field: "middleware", Err: err}
	}
	erased, err := hidden.Spec(spec, w.engine.env)
	if wrong, ok := errors.AsType[*fsm.SpecError](err); ok {
		return nil, &InsertError{Index: i, Field: wrong.Field, Err: wrong.Err}
	}
	if err != nil {
		return nil, err
	}
	erased.Trace = w.engine.env.Trace(ctx)
	return erased, w.within.takes(erased)
}

func (w writer) insert(ctx context.Context, specs ...*step.Spec) ([]Inserted, error) {
	by, err := cancelling(ctx, specs)
	if err != nil {
		return nil, err
	}
	rows, effects, err := w.rows(ctx, specs, by)
	if err != nil {
		return nil, err
	}
	w.beside(ctx, effects)
	done := make([]Inserted, len(rows))
	fresh := map[string]bool{}
	for i, row := range rows {
		done[i] = Inserted{ID: fsm.ID(row.ID), Duplicate: row.Duplicate, Replaced: row.Replaced, Throttled: row.Throttled, Until: row.Until}
		if !row.Duplicate && !row.Claimed && w.engine.soon(specs[i]) {
			fresh[specs[i].Queue] = true
		}
	}
	for queue := range fresh {
		w.wake(queue)
	}
	return done, nil
}

// cancelling returns who inserts, and why, for the audit of the instances that a policy cancels.
func cancelling(ctx context.Context, specs []*step.Spec) (store.By, error) {
	if !slices.ContainsFunc(specs, func(x *step.Spec) bool { return x.Conflict == step.ConflictNewest }) {
		return store.By{}, nil
	}
	var o order
	err := o.asked(ctx, VerbCancel)
	return o.By, err
}

// insertRows inserts in a new transaction.
func (e *Engine) insertRows(ctx context.Context, specs []*step.Spec, by store.By) (done []store.Inserted, effects store.Effects, err error) {
	if slices.ContainsFunc(specs, (*step.Spec).Ruled) {
		defer e.explain(ctx, slices.Concat(toWrite, toRule), &err)
	}
	if e.store.Keeping() {
		defer e.explain(ctx, slices.Concat(toWrite, toTake), &err)
	}
	insertion := e.store.Insertion(specs)
	insertion.Ask(by)
	t := task{doing: "insert", attrs: []slog.Attr{slog.Int("instances", len(specs))}}
	slots := e.reserve(specs, insertion)
	doubt := false
	err = e.patiently(ctx, t, func() error {
		done, err = insertion.Try(ctx)
		if slots != nil {
			slots.Settle(insertion.Claims(), err)
			slots, doubt = nil, store.Unknown(err)
			if store.IsLockTimeout(err) { // it has waited briefly, since slots waited with it
				done, err = insertion.Try(ctx)
			}
		}
		return err
	})
	if doubt { // the first try may have taken effect only now, before a later one found out
		e.worker.Doubt(specs[0].Queue)
	}
	if err != nil {
		return nil, store.Effects{}, insertion.Failed(err)
	}
	return done, insertion.Effects(), nil
}

// reserve makes an insertion insert its instances as claimed already if the worker of this process
// has a free slot for each of them, and would claim them at once. It returns nil otherwise.
func (e *Engine) reserve(specs []*step.Spec, insertion *store.Insertion) *work.Reservation {
	if e.worker == nil {
		return nil
	}
	slots := e.worker.Reserve(specs)
	if slots != nil && !insertion.Claim(slots.Worker()) {
		slots.Settle(nil, nil)
		return nil
	}
	return slots
}

// besides nudges what an insert made runnable beside its own instances, and tells of those that it
// cancelled.
func (e *Engine) besides(ctx context.Context, effects store.Effects) {
	e.nudge(effects.Queues...)
	if len(effects.Ended) > 0 {
		e.tell(ctx, effects.Ended)
	}
	e.promote(ctx, effects.Missed)
}

// soon reports whether an instance is due before the scheduler of its queue would look again by
// itself.
func (e *Engine) soon(spec *step.Spec) bool {
	delay := spec.Delay
	if !spec.At.IsZero() {
		delay = time.Until(spec.At)
	}
	return delay <= e.config.Queues[spec.Queue].PollMax
}
