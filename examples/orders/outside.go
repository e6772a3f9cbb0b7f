package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// soldOut is the item that the warehouse has run out of.
const soldOut = "tape-deck"

// loseAnswer is how many shipments there are for each whose first answer is lost: the warehouse has
// shipped, and the shop does not know.
const loseAnswer = 31

var (
	errSoldOut    = errors.New("sold out")
	errAnswerLost = errors.New("connection lost before the warehouse answered")
	errOutdated   = errors.New("a newer worker has taken over this order")
)

// outside has the services on which the machine has effects: a warehouse, a bank, a mail service.
// They honour idempotency keys, as such services do, keep a row for each effect, and take a while
// to answer.
type outside struct {
	db      *pgxpool.Pool
	latency time.Duration
}

func (o *outside) ship(ctx context.Context, order Order, key string, token int64) error {
	if order.Item == soldOut {
		return errSoldOut
	}
	calls, err := o.effect(ctx, "shipment", order.ID, order.Cents, key, token)
	if err == nil && calls == 1 && order.ID%loseAnswer == 0 {
		return errAnswerLost
	}
	return err
}

func (o *outside) refund(ctx context.Context, order Order, key string, token int64) error {
	_, err := o.effect(ctx, "refund", order.ID, order.Payment.Cents, key, token)
	return err
}

func (o *outside) mail(ctx context.Context, order Order, key string, token int64) error {
	_, err := o.effect(ctx, "mail", order.ID, 0, key, token)
	return err
}

// effect happens once for a key, however often it is called; calls counts the calls. A caller with
// an older fencing token than the last caller's has lost the order to another worker without
// knowing it, and is refused.
const recordEffect = `
insert into effect as e (key, name, order_id, cents, token) values ($1, $2, $3, $4, $5)
on conflict (key) do update set calls = e.calls + 1, token = excluded.token, last_at = clock_timestamp()
	where e.token <= excluded.token
returning calls`

func (o *outside) effect(ctx context.Context, name string, order, cents int64, key string, token int64) (calls int, err error) {
	err = o.db.QueryRow(ctx, recordEffect, key, name, order, cents, token).Scan(&calls)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("%s of order %d: %w", name, order, errOutdated)
	case err != nil:
		return 0, fmt.Errorf("%s of order %d: %w", name, order, err)
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(o.latency):
		return calls, nil
	}
}
