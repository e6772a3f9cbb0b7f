package engine_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A shop is what most examples begin with: an engine that works on checkouts, on a separate
// database. [Example] shows what a program writes instead.
type shop struct {
	eng  *engine.Engine
	pool *pgxpool.Pool
	drop func() error
}

func openShop(change ...func(*engine.Config)) shop {
	ctx := context.Background()
	url, drop, err := pgtest.Example()
	check(err)
	pool, err := pgxpool.New(ctx, url)
	check(err)
	config := engine.Config{
		Pool:     pool,
		Machines: []fsm.Definition{checkout.Define(fsm.Step("start", start).To("ship"), fsm.Step("ship", ship).To())},
		Queues:   map[string]engine.Queue{"default": {Concurrency: 50}},
		Logger:   slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&config)
	}
	eng, err := engine.New(config)
	check(err)
	check(eng.Start(ctx))
	return shop{eng: eng, pool: pool, drop: drop}
}

func (s shop) close() {
	check(s.eng.Stop(context.Background()))
	s.pool.Close()
	check(s.drop())
}

// place inserts an order, which then awaits its payment.
func (s shop) place(id int64) fsm.ID {
	ctx := context.Background()
	inserted, err := s.eng.Insert(ctx, checkout.New(order{ID: id, Cents: 4200}).Key(orderKey(id)).Label("customer", "ada"))
	check(err)
	s.until(inserted, fsm.StatusAwaitingSignal)
	return inserted
}

func (s shop) until(id fsm.ID, status fsm.Status) {
	await(func() bool {
		i, err := s.eng.Get(context.Background(), id)
		check(err)
		return i.Status == status
	})
}

func await(holds func() bool) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for !holds() {
		<-every.C
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
