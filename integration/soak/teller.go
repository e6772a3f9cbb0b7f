package soak

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// accounts is how many accounts there are. They are few, so that tellers meet on them, in any
// order, and deadlocks make their steps run again. With far fewer, on a busy machine some tellers
// would meet a deadlock each time, up to the bound.
const accounts = 40

// book writes to the host's tables in the transaction of its outcome, and sends a letter from it.
func (p player) book(ctx context.Context, r *run) (fsm.Outcome, error) {
	if err := r.attempt(ctx); err != nil {
		return nil, err
	}
	r.decide(ownTransaction, r.Step, r.State.N)
	return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
		out, err := r.transact(ctx, tx)
		e := of(&r.Info, &r.State)
		e.Kind, e.Outcome, e.To, e.ToN = evDecided, r.decided.Outcome, r.decided.To, r.decided.ToN
		if err != nil {
			e.Outcome, e.Detail = failure(ctx, err)
		}
		p.log.write(e)
		return out, err
	}), nil
}

// ownTransaction is the outcome of a step that will decide in its own transaction.
const ownTransaction = "own transaction"

func (r *run) transact(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
	letter := fmt.Sprintf("%s/box/%d#v%d", r.State.Label, r.State.Steps-1, r.Visit)
	d, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, fsm.ID(r.State.Sends), pings.With(ping{r.State.Steps - 1, letter}))
	switch {
	case errors.Is(err, engine.ErrNoTarget):
		letter = "" // an operator has cancelled the mailbox
	case err != nil:
		return nil, err
	case d.Duplicate:
		r.wrong("a letter without a dedup key is a duplicate")
	}
	if _, err := tx.Exec(ctx, `INSERT INTO soak.booking (id, visit, token, letter) VALUES ($1, $2, $3, nullif($4, ''))`,
		int64(r.ID), r.Visit, r.FencingToken, letter); err != nil {
		return nil, err
	}
	a := int(r.State.Seed%accounts) + r.State.N
	for _, account := range []int{a % accounts, a * 7 % accounts} {
		if _, err := tx.Exec(ctx, `UPDATE soak.account SET n = n + 1 WHERE id = $1`, account); err != nil {
			return nil, err
		}
	}
	if r.State.Seed%5 == 0 && r.Attempt == r.State.Fails {
		return nil, errPassing // undoes it all
	}
	s := r.moved()
	if s.Steps--; s.Steps > 0 {
		return r.next("book", s), nil
	}
	return r.done(), nil
}
