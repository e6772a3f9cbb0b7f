package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrate"
)

type (
	order   struct{ ID, Cents int64 }
	receipt struct{ Order, Paid int64 }
	payment struct{ Cents int64 }
)

// Inserters, senders and workers share these: identities, no behaviour.
var (
	checkout = fsm.Declare[order, receipt]("checkout")
	received = fsm.DeclareSignal[payment]("payment_received")
)

func orderKey(id int64) fsm.Key { return fsm.Key(fmt.Sprintf("order:%d", id)) }

func start(_ context.Context, v *fsm.Visit[order, receipt]) (fsm.Outcome, error) {
	return v.Await("ship", v.State, received).Timeout(24 * time.Hour), nil
}

func ship(_ context.Context, v *fsm.Visit[order, receipt]) (fsm.Outcome, error) {
	p, ok, err := received.First(v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return v.Fail(errors.New("unpaid")), nil
	}
	return v.Done(receipt{Order: v.State.ID, Paid: p.Cents}), nil
}

// A worker's main: migrate, work until a signal of the system, drain.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	defer pool.Close()
	if _, err := (migrate.Migrator{Pool: pool}).Up(ctx); err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	eng, err := engine.New(engine.Config{
		Pool:     pool,
		Machines: []fsm.Definition{checkout.Define(fsm.Step("start", start).To("ship"), fsm.Step("ship", ship).To())},
		Queues:   map[string]engine.Queue{"default": {Concurrency: 50}},
	})
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	if err := eng.Run(ctx); err != nil {
		slog.Error("example", slog.Any("error", err))
	}
}

// An API server is a client: it has no queues and no step's code, and needs no Start.
func Example_client() {
	shop := openShop() // works in another process
	defer shop.close()
	ctx := context.Background()

	eng, err := engine.New(engine.Config{Pool: shop.pool})
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	id, err := eng.Insert(ctx, checkout.New(order{ID: 42, Cents: 4200}).Key(orderKey(42)))
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	if _, err := eng.Signal(ctx, orderKey(42), received.With(payment{Cents: 4200}).DedupKey("evt-7")); err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	done, err := checkout.Wait(ctx, eng, id)
	if failed, ok := errors.AsType[*fsm.FailedError](err); ok {
		fmt.Println("failed:", failed.Failure, failed.Message)
		return
	}
	fmt.Println("paid:", done.Paid, err)
	// Output: paid: 4200 <nil>
}
