package signal_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/signal"
)

// A server that takes webhooks delivers a payment. Its order may come later: the message is kept.
func ExampleSender_Send() {
	pool, closing := database()
	defer closing()
	type payment struct{ Cents int64 }
	received := fsm.DeclareSignal[payment]("payment_received")

	sender, err := signal.New(signal.Config{Pool: pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	event := received.With(payment{Cents: 4200}).DedupKey("event-7")
	_, err = sender.Send(ctx, fsm.Key("order:42"), event)
	fmt.Println("no order yet:", errors.Is(err, signal.ErrNoTarget))
	sent, err := sender.Send(ctx, fsm.Key("order:42"), event.KeepFor(time.Hour))
	fmt.Println("kept:", sent.Kept, err)
	sent, err = sender.Send(ctx, fsm.Key("order:42"), event.KeepFor(time.Hour))
	fmt.Println("again:", sent.Duplicate, err)
	// Output:
	// no order yet: true
	// kept: true <nil>
	// again: true <nil>
}

func database() (pool *pgxpool.Pool, closing func()) {
	url, drop, err := pgtest.Example()
	if err != nil {
		panic(err)
	}
	if pool, err = pgxpool.New(context.Background(), url); err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		if err := drop(); err != nil {
			panic(err)
		}
	}
}
