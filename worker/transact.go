package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// rerunMost bounds how often in a row a visit runs again since its own transaction met what passes by itself: a conflict that comes every
// time, or a function that breaks its connection every time, is the step's error after some ten seconds. An outage is not counted: in one
// the transaction does not even begin.
const rerunMost = 10

// transact runs a step's own transaction (spec §8): the outcome is decided and committed inside it. It does not pass the committer: such
// a transaction is one connection's, from the function's first statement to the commit. Whatever re-runs, re-runs the whole step.
func (x *execution) transact(o *step.Commit) (r commitReply) {
	w, again := x.w, x.before
	for n := 0; sleep(x.f.ctx, backoff(n, 10*time.Millisecond, 5*time.Second)); n++ {
		var expired error // why the function's own context ended
		mark, began := uuid.NewString(), w.since()
		t, err := w.db.Transact(x.f.ctx, w.base, w.id, mark, x.f.claim, func(tx any) (e store.Entry, err error) {
			e, expired, err = x.within(o, tx)
			return e, err
		})
		x.took += w.since() - began
		switch {
		case err != nil && !t.Begun:
			if x.f.ctx.Err() == nil {
				w.trouble("begin a step's transaction", err)
			}
			continue
		case err != nil && !t.Decided:
			x.redecide(again, t.Lost, expired, err)
			return commitReply{again: true}
		case err != nil:
			r = x.undecided(again, mark, t, err)
		case !t.Applied[x.f.claim.ID]:
			r = commitReply{stale: true}
		default:
			w.commits.applied(&t.Committed, w.since()-began)
			if t.Entry.Commit.Kind == step.Done || t.Entry.Commit.Kind == step.Stop {
				w.ended([]int64{x.f.claim.ID})
			}
		}
		x.sent.entry = t.Entry
		return r
	}
	x.giveUp(again)
	return commitReply{again: true}
}

// within calls the function, as a step is called: guarded, under the step's timeout, which begins anew.
func (x *execution) within(o *step.Commit, tx any) (e store.Entry, expired, err error) {
	ctx := fsm.WithClaim(x.f.ctx, x.f.claim)
	if limit := x.m.Steps[x.f.claim.Step].Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fsm.ErrStepTimeout)
		defer cancel()
		defer x.w.watch(ctx, x.f)()
	}
	out, err := x.guarded(func() (*step.Commit, error) { return o.Within(x.extract(ctx), tx) })
	if err != nil {
		return e, context.Cause(ctx), err
	}
	x.phase = decided
	return store.Entry{Claim: x.f.claim, Commit: out, Keep: x.mayRunAhead(out)}, context.Cause(ctx), nil
}

// redecide answers a function that failed. What may pass re-runs the step, or the handler, under the same claim and with the attempt that
// it was. Anything else is an error of the step, or of the handler.
func (x *execution) redecide(again phase, lost bool, expired, err error) {
	switch {
	case x.f.lost() != nil:
		x.giveUp(again)
	case expired != nil:
		x.fail(again, fmt.Errorf("%w: %w", expired, err))
	case lost || store.MayPass(err):
		x.runAgain(again, err)
	default:
		x.fail(again, err)
	}
}

// undecided answers an error of the engine's own statements behind a function that succeeded.
func (x *execution) undecided(again phase, mark string, t store.Transacted, err error) commitReply {
	w := x.w
	fault := store.Classify(err)
	switch {
	case store.Unknown(err):
		w.trouble("commit a step's transaction", err)
		answer := make(answerOnce, 1)
		p := &pending{flight: x.f, entry: t.Entry, marks: []string{mark}, to: answer}
		if len(w.commits.resolve([]*pending{p}, true)) == 0 {
			return <-answer
		}
	case fault == store.FaultData:
		return commitReply{refused: err}
	case w.base.Err() != nil:
		return commitReply{abandoned: true}
	case store.IsLockTimeout(err), fault == store.FaultConfig: // not the step's doing, however often
		x.rerun = min(x.rerun, rerunMost-1)
		w.reportHolder(x.f.claim, err)
	}
	x.runAgain(again, err)
	return commitReply{again: true}
}

// runAgain makes decide run the step anew, or its handler, after a pause.
func (x *execution) runAgain(again phase, err error) {
	if x.rerun++; x.rerun > rerunMost {
		x.fail(again, fmt.Errorf("met %d times in a row: %w", x.rerun, err))
		return
	}
	x.w.trouble("finish a step's transaction", err)
	if x.phase = fresh; again == inHandler {
		x.phase = failing
	}
	sleep(x.f.ctx, backoff(x.rerun, 10*time.Millisecond, 5*time.Second)) // if it was cut short, decide sees why
}

// giveUp makes decide return nothing: the engine has cancelled the step.
func (x *execution) giveUp(again phase) {
	if x.phase = failing; again == inStep {
		x.failed = context.Cause(x.f.ctx)
	}
}

// fail makes decide call the handler; where it was the handler that failed, nobody is left.
func (x *execution) fail(again phase, err error) {
	if again == inHandler {
		x.phase, x.failed = spent, fmt.Errorf("%w; its handler: %w", x.failed, err)
		return
	}
	x.phase, x.failed = failing, err
}
