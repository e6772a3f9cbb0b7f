package recipes

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type OrderPlaced struct{ ID, Cents int64 }

var Publish = fsm.Declare[OrderPlaced, fsm.None]("publish.order", fsm.Queue("outbox"))

// place is the outbox: one commit holds the order and the event to publish.
func place(ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, o OrderPlaced) error {
	var durable *engine.Tx
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		durable = eng.WithPgx(tx)
		if _, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2)`, o.ID, o.Cents); err != nil {
			return err
		}
		_, err := durable.Insert(ctx, Publish.New(o).PartitionKey(fmt.Sprintf("order:%d", o.ID)))
		return err
	})
	if err == nil {
		durable.Nudge()
	}
	return err
}

// receive is the inbox: a message that the broker delivers again finds its instance.
func receive(ctx context.Context, eng *engine.Engine, messageID string, o OrderPlaced) error {
	_, err := eng.GetOrInsert(ctx, Handle.New(o).Key(fsm.Key("message:"+messageID)).Scope(fsm.ScopeAll))
	return err // nil: acknowledge it to the broker
}

var Handle = fsm.Declare[OrderPlaced, fsm.None]("handle.order")
