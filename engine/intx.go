package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// InTx returns an outcome that f decides inside the transaction that commits it (spec §8). What f
// writes through tx, the outcome, the signals that it consumes, its children, and the signals that
// f sends by FromContext(ctx).WithPgx(tx) take effect together, or not at all. So f's writes take
// effect once. f returns any outcome of the visit but another InTx.
//
// The engine calls f after the step has returned. It begins and ends the transaction, which is READ
// COMMITTED, on a connection of the pool. tx refuses Commit and Rollback; f may use savepoints. To
// undo what was written, return an error: it goes to the machine's handler as an error of the step.
// So does an error of Postgres that f ignored without a savepoint. An error of fsm.Again runs the
// step again later. Effects of f outside of tx happen at least once, as in any step.
//
// A conflict with another transaction (a deadlock, a serialization failure) or a broken connection
// runs the whole step again, under the same claim and with the same attempt, up to ten times in a
// row. After that it is an error like any other. The step's timeout begins anew for f.
//
// Use tx in f only, and not after f's return. Such transactions may take all but one of the pool's
// connections at a time.
func InTx(f func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error)) fsm.Outcome {
	return hidden.Outcome(func(of *step.Claim) (*step.Commit, error) {
		if f == nil {
			return nil, &fsm.OutcomeError{Field: "outcome", Err: errors.New("InTx got a nil function")}
		}
		return &step.Commit{Within: func(ctx context.Context, tx any) (*step.Commit, error) {
			native, ok := tx.(pgx.Tx)
			if !ok {
				return nil, fmt.Errorf("the transaction is a %T, want a pgx.Tx", tx)
			}
			out, err := f(ctx, native)
			switch {
			case err != nil:
				return nil, err
			case out == nil:
				return nil, &fsm.OutcomeError{Field: "outcome", Err: errors.New("nil, without an error: the function of InTx returns one of the two")}
			}
			commit, err := hidden.Commit(out, of)
			switch {
			case err != nil:
				return nil, err
			case commit.Within != nil:
				return nil, &fsm.OutcomeError{Field: "outcome", Err: errors.New("InTx inside of InTx: return a plain outcome from its function")}
			}
			if own, ok := stepOf(native); ok {
				err = own.Lead(ctx)
			}
			return commit, err
		}}, nil
	})
}

// AroundCommit has around called when the function of [InTx] that got tx, or set the savepoint tx,
// has returned an outcome. around calls commit once. Before that it may write through tx; its error
// undoes everything, as the function's own error would. commit returns nil after the transaction
// has committed, and an error if it has not, or if this is not known. So code behind a nil error
// runs for no transaction that was undone, and not at all if the process dies right after the
// commit. The error of around is logged after a commit, and otherwise ignored.
//
// Several functions run one inside the other, the last one innermost. Rolling back a savepoint
// takes back those that came since it was set. AroundCommit returns false, and does nothing, if tx
// belongs to no step. A client that is generated with package entity/extension calls it for its
// hooks of OnCommit.
func AroundCommit(tx pgx.Tx, around func(ctx context.Context, commit func(context.Context) error) error) bool {
	own, ok := stepOf(tx)
	if ok {
		own.Around(around)
	}
	return ok
}

// stepOf returns the step's own transaction that tx is, or is a savepoint of.
func stepOf(tx pgx.Tx) (*store.StepTx, bool) {
	own, ok := tx.(interface{ Step() *store.StepTx })
	if !ok {
		return nil, false
	}
	return own.Step(), true
}
