package work

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// turn tells the execution what to do after a step's own transaction.
type turn struct {
	kind     turnKind
	reply    commitReply // turnReply: the fate of the outcome
	entry    store.Entry // turnReply, turnHeld: the outcome
	mark     string      // turnHeld: of the attempt to commit it, if there was one
	doubt    bool        // turnHeld: it may have taken effect
	failed   *failure    // turnRepeat, turnFail, turnHeld: the error
	innocent bool        // turnRepeat, turnHeld: the step is not to blame, however often it happens
}

type turnKind int

const (
	// turnReply: the outcome was sent. Go on as after any commit.
	turnReply turnKind = iota
	// turnRepeat: nothing was written, and the error may be absent the next time. Run the code that
	// decided again, the step or its handler.
	turnRepeat
	// turnFail: nothing was written, and the error is the step's, or its handler's.
	turnFail
	// turnEnded: nothing was written, and the flight's context has ended.
	turnEnded
	// turnHeld: another session holds the instance's row, or its parent's: a host's session, or the
	// attempt's old backend. If nothing was written once it is free again, repeat.
	turnHeld
)

// transact runs a step's own transaction (§8), which decides and commits the outcome. It does not
// use the committer, since such a transaction uses one connection from the function's first
// statement to the commit. Every repetition repeats the whole step.
func (x *execution) transact(o *step.Commit) turn {
	for n := 0; pace.Sleep(x.f.ctx, pace.Backoff(n, 10*time.Millisecond, 5*time.Second)); n++ {
		var failed *failure // the function's failure
		var expired error   // why the function's own context ended
		var lasted time.Duration
		mark, began := uuid.NewString(), x.since()
		t, err := x.db.Transact(x.f.ctx, x.base, x.id, mark, x.f.claim, x.rerun, func(tx any) (e store.Entry, err error) {
			called := x.since()
			if e, failed, expired = x.within(o, tx); failed != nil {
				err = failed.safe
			}
			lasted = x.since() - called
			return e, err
		})
		x.took += x.since() - began
		if err != nil || !t.Applied[x.f.claim.ID] {
			x.settle(t, cmp.Or(err, errStale))
		}
		switch {
		case err != nil && !t.Begun:
			if x.f.ctx.Err() == nil {
				x.commits.setBack("begin a step's transaction", err)
			}
			continue
		case err != nil && !t.Decided:
			if failed == nil {
				failed = known(err) // the function left the transaction unfit to commit
			}
			return x.undecided(t.Lost, expired, failed, lasted >= t.Wait)
		case err != nil:
			return x.uncommitted(mark, t, err)
		case !t.Applied[x.f.claim.ID]:
			x.commits.woke(&t.Committed) // where a node was cancelled instead
			return turn{entry: t.Entry, reply: commitReply{stale: true}}
		}
		x.commits.applied(&t.Committed, x.since()-began)
		x.commits.unread(t.Unread, []store.Entry{t.Entry})
		turned := t.Turned[x.f.claim.ID]
		if t.Entry.Commit.Kind.Terminal() && !turned {
			x.ended([]int64{x.f.claim.ID})
		}
		if t.Entry.Commit.Kind.Parks() {
			x.parked([]int64{x.f.claim.ID})
		}
		x.settle(t, nil)
		return turn{entry: t.Entry, reply: commitReply{turned: turned}}
	}
	return turn{kind: turnEnded}
}

// errStale is the fate of a transaction whose outcome was stale.
var errStale = errors.New("the claim was over, so nothing of the step's transaction was committed")

// settle lets the functions around the commit go on. They are user code, but the step's outcome is
// decided, so an error or a panic of theirs is only logged, and only after a commit: otherwise it
// repeats the error that they got.
func (x *execution) settle(t store.Transacted, fate error) {
	if t.Settle == nil {
		return
	}
	_, failed := x.guarded(func() (*step.Commit, error) { return &step.Commit{}, t.Settle(fate) })
	if failed != nil && fate == nil {
		x.log.LogAttrs(x.f.ctx, slog.LevelError, "a step's outcome is committed, but a function around its commit failed behind it",
			slog.Int64("instance", x.f.claim.ID), slog.Any("error", failed.safe))
	}
}

// within calls the function like a step: guarded, and under the step's timeout, which begins anew.
func (x *execution) within(o *step.Commit, tx any) (e store.Entry, failed *failure, expired error) {
	called := x.since()
	ctx := hidden.WithClaim(x.f.ctx, x.f.claim)
	if limit := x.m.Steps[x.f.claim.Step].Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fsm.ErrStepTimeout)
		defer cancel()
		defer x.watch(ctx, x.f)()
	}
	out, failed := x.guarded(func() (*step.Commit, error) { return o.Within(x.extract(ctx), tx) })
	if failed != nil {
		return e, failed, context.Cause(ctx)
	}
	return x.entry(out, x.took+x.since()-called), nil, context.Cause(ctx)
}

// undecided returns the turn after a function that failed. An error that may be absent the next
// time repeats the step, or the handler. Any other is an error of the step, or of the handler.
// waited: the function lasted as long as it may wait for a lock. If it waited in vain, that is the
// lock's fault, however often.
func (x *execution) undecided(lost bool, expired error, failed *failure, waited bool) turn {
	switch {
	case x.f.lost() != nil:
		return turn{kind: turnEnded}
	case expired != nil:
		return turn{kind: turnFail, failed: known(expired).and(": ", failed)}
	case failed.locked && waited:
		nothing := store.Entry{Claim: x.f.claim, Commit: &step.Commit{Kind: step.Retry}}
		return turn{kind: turnHeld, entry: nothing, failed: failed, innocent: true}
	case lost || failed.passes:
		return turn{kind: turnRepeat, failed: failed}
	}
	return turn{kind: turnFail, failed: failed}
}

// uncommitted returns the turn after an error of the engine's own statements that follow a
// successful function.
func (x *execution) uncommitted(mark string, t store.Transacted, err error) turn {
	fault := store.Classify(err)
	switch {
	case store.Unknown(err):
		x.commits.setBack("commit a step's transaction", err)
		return turn{kind: turnHeld, entry: t.Entry, mark: mark, doubt: true, failed: known(err)}
	case fault == store.FaultData:
		return turn{entry: t.Entry, reply: commitReply{refused: err}}
	case x.base.Err() != nil:
		return turn{entry: t.Entry, reply: commitReply{abandoned: true}}
	case store.IsLockTimeout(err):
		x.reportHolder(x.f.claim, err)
		return turn{kind: turnHeld, entry: t.Entry, mark: mark, failed: known(err), innocent: true}
	case fault == store.FaultConfig:
		return turn{kind: turnRepeat, failed: known(err), innocent: true}
	}
	return turn{kind: turnRepeat, failed: known(err)}
}
