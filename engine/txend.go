package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// MaxDelete bounds how many entities that machines drive one delete of a host's ent client deletes,
// since it deals with all their instances in one transaction.
const MaxDelete = 10_000

// MaxUpdate bounds how many entities one update of a host's ent client updates and signals, in one
// transaction.
const MaxUpdate = 10_000

// IsStepOf reports whether the transaction is the own one of a step of this instance, by [InTx].
func (t *Tx) IsStepOf(id fsm.ID) bool { return t.step != nil && t.step.Instance == int64(id) }

// RequireEnded makes sure that none of the instances is live, and that none becomes live before the
// transaction has ended: an operator's Retry waits for that. An instance that is gone, after its
// retention, counts as ended. So does, inside of [InTx], the instance whose step this is: its
// outcome decides what becomes of it.
//
// A host calls it before it deletes what the instances work on. An outcome of a live instance that
// it has met waits until the transaction ends.
//
// Errors: a *[LiveError] for the first instance that is live.
func (t *Tx) RequireEnded(ctx context.Context, ids ...fsm.ID) error {
	live, err := t.hosted.Live(ctx, t.others(ids))
	if err != nil {
		return err
	}
	if len(live) > 0 {
		return &LiveError{ID: fsm.ID(live[0].ID), Status: fsm.Status(live[0].Is), Live: len(live)}
	}
	return nil
}

// Cancel cancels the live ones of some instances, as [Admin.Cancel] does, together with what else
// the transaction writes. It returns all that it cancelled, descendants included, in order of their
// ids. Instances that have ended or are gone are no error. Inside of [InTx] it leaves the instance
// alone whose step this is: its outcome decides what becomes of it.
//
// The options are [Reason], [Actor] and [Descendants]. Nudge tells the steps in this process after
// the commit, others learn of it at their next heartbeat; so does everyone inside of InTx.
//
// Errors: a *[VerbError] for bad input.
func (t *Tx) Cancel(ctx context.Context, ids []fsm.ID, options ...VerbOption) ([]fsm.ID, error) {
	o, err := scope{}.newOrder(ctx, VerbCancel, options)
	if err != nil {
		return nil, err
	}
	if o.Seen != nil {
		return nil, &VerbError{VerbCancel, "IfUnchanged", errors.New("not in a transaction of yours: use Admin")}
	}
	if o.within != nil {
		return nil, &VerbError{VerbCancel, "Within", errors.New("not in a transaction of yours: use Admin")}
	}
	done, err := t.hosted.Cancel(ctx, t.others(ids), &o.Order)
	if family, ok := errors.AsType[*store.TooManyError](err); ok {
		return nil, &VerbError{VerbCancel, "Descendants", fmt.Errorf("%w: cancel parts of the family first", family)}
	}
	if err != nil {
		return nil, err
	}
	cancelled := make([]int64, len(done.Changed))
	out := make([]fsm.ID, len(done.Changed))
	for i, c := range done.Changed {
		cancelled[i], out[i] = c.ID, fsm.ID(c.ID)
	}
	t.besides(ctx, store.Effects{Ended: cancelled, Promotion: done.Promotion})
	return out, nil
}

// others returns the ids except the instance whose step this transaction belongs to.
func (t *Tx) others(ids []fsm.ID) []int64 {
	out := make([]int64, 0, len(ids))
	for _, id := range ids {
		if t.step == nil || int64(id) != t.step.Instance {
			out = append(out, int64(id))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// LiveError says that an instance has not ended whose owner was about to be deleted. It is an
// [ErrLive].
type LiveError struct {
	ID     fsm.ID // the first
	Status fsm.Status
	Live   int // how many of those asked about are live
}

func (e *LiveError) Error() string {
	more := ""
	if e.Live > 1 {
		more = fmt.Sprintf(", and %d more of them are live", e.Live-1)
	}
	return fmt.Sprintf("%v: instance %d is %s%s", ErrLive, e.ID, e.Status, more)
}

// Is reports whether target is ErrLive.
func (e *LiveError) Is(target error) bool { return target == ErrLive }
