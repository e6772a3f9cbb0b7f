package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
)

// Around is a function around the commit of a step's own transaction: it calls commit once, and
// then knows whether the transaction has committed.
type Around func(ctx context.Context, commit func(context.Context) error) error

// Around adds a function around the commit.
func (t *StepTx) Around(f Around) { t.arounds = append(t.arounds, f) }

// Lead runs the first part of each function around the commit, up to its call of commit, in the
// order in which they came. The step's function calls it last, so that an error or a panic of such
// a part is the function's, and undoes what it wrote. Then the parts that have run are settled.
func (t *StepTx) Lead(ctx context.Context) (err error) {
	led := false
	defer func() {
		if !led {
			_ = t.Settle(cmp.Or(err, errUndone)) // err is nil if the part has panicked
		}
	}()
	for _, p := range t.released {
		p.Tx = t.Tx // functions that came within a savepoint write by it
	}
	for len(t.arounds) > 0 {
		f := t.arounds[0]
		t.arounds = t.arounds[1:]
		l, err := begin(ctx, f)
		if err != nil {
			return err
		}
		t.leads = append(t.leads, l)
	}
	led = true
	return nil
}

// Settle runs the second parts, the last function's first, once the transaction has ended: fate is
// nil if it has committed. It returns their errors.
func (t *StepTx) Settle(fate error) error {
	var errs []error
	for len(t.leads) > 0 {
		last := len(t.leads) - 1
		l := t.leads[last]
		t.leads = t.leads[:last] // first, since what follows may panic
		l.fate = fate
		l.resume()
		errs = append(errs, l.err)
	}
	return errors.Join(errs...)
}

// lead is a function around the commit that waits in its call of commit.
type lead struct {
	resume    func() (struct{}, bool)
	waits     bool
	fate, err error
}

var (
	errNoCommit   = errors.New("a function around the commit of a step's own transaction has returned without calling commit: return an error to undo the transaction")
	errUndone     = errors.New("the step's transaction is undone, since another function around its commit panicked")
	errCommitOnce = errors.New("a function around the commit of a step's own transaction has called commit twice")
)

// begin calls f up to its call of commit. A coroutine holds it there, so that both of its parts are
// one call of f, although the commit comes after the return of the step's function.
func begin(ctx context.Context, f Around) (*lead, error) {
	l := &lead{}
	ctx, release := until(ctx)
	l.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		l.err = f(ctx, func(context.Context) error {
			if l.waits {
				return errCommitOnce
			}
			l.waits = true
			release()
			yield(struct{}{})
			return l.fate
		})
	})
	if l.resume(); l.waits {
		return l, nil
	}
	if l.err == nil {
		return nil, errNoCommit
	}
	return nil, l.err
}

// until returns a context that ends with ctx, unless release is called before: the context of a
// step's function is over when the second part of f runs.
func until(ctx context.Context) (c context.Context, release func()) {
	c, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return c, func() { stop() }
}
