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
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrations"
)

type (
	order   struct{ ID, Cents int64 }
	receipt struct{ Order, Paid int64 }
	payment struct{ Cents int64 }
)

// What inserters, senders and workers share: identities, no behaviour.
var (
	checkout = fsm.Declare[order, receipt]("checkout")
	received = fsm.DeclareSignal[payment]("payment_received")
)

var eng *engine.Engine // of New

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
		return v.Stop(errors.New("unpaid")), nil
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
	if _, err := (migrations.Migrator{Pool: pool}).Up(ctx); err != nil {
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

// An API server is a client: no queues, no step's code, no Start.
func Example_client() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	defer pool.Close()
	eng, err := engine.New(engine.Config{Pool: pool})
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	if _, err := eng.Insert(ctx, checkout.New(order{ID: 42, Cents: 4200}).Key(orderKey(42))); err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	if _, err := eng.Signal(ctx, orderKey(42), received.With(payment{Cents: 4200}).DedupKey("evt-7")); err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	done, err := checkout.Wait(ctx, eng, orderKey(42))
	if failed, ok := errors.AsType[*fsm.FailedError](err); ok {
		fmt.Println("failed:", failed.Failure, failed.Message)
		return
	}
	fmt.Println("paid:", done.Paid, err)
}

// All faults come at once, each with its field.
func ExampleNew() {
	_, err := engine.New(engine.Config{
		Lease:  30 * time.Second,
		Reap:   -time.Second,
		Queues: map[string]engine.Queue{"checkout": {Concurrency: -1}},
	})
	fmt.Println(err)
	// Output:
	// gendurable: config: Pool: nil
	// gendurable: config: Reap: -1s is negative
	// gendurable: config: Queues[checkout].Concurrency: -1 is negative
	// gendurable: config: Machines: none, but there are Queues: nothing of them could run here
}

// Whichever process is there fires them, and each occurrence once.
func ExampleCron() {
	_, err := engine.New(engine.Config{Schedules: []engine.Schedule{
		engine.Cron("nightly", "0 3 * * *", checkout.New(order{ID: 42})).In("Europe/Berlin").CatchUp(engine.CatchUpLatest),
		engine.Cron("typo", "0 33 * * *", checkout.New(order{ID: 42})),
	}})
	fmt.Println(err)
	// Output:
	// gendurable: config: Pool: nil
	// gendurable: config: Schedules[typo].Expression: "0 33 * * *": hour, at position 3: 33, want 0 to 23
}

func ExampleEvery() {
	schedule := engine.Every("pulse", 30*time.Second, checkout.New(order{ID: 42})).Overlap(engine.OverlapSkip).Jitter(5 * time.Second)
	_, err := engine.New(engine.Config{Schedules: []engine.Schedule{schedule}})
	fmt.Println(err)
}

func ExampleAdmin_RunSchedule() {
	id, err := eng.Admin().RunSchedule(context.Background(), "nightly")
	if errors.Is(err, engine.ErrConflict) {
		fmt.Println("one of it is running")
		return
	}
	fmt.Println(id, err)
}

func ExampleEngine_Insert() {
	id, err := eng.Insert(context.Background(), checkout.New(order{ID: 42}).Key(orderKey(42)).Priority(-5).After(time.Minute))
	if duplicate, ok := errors.AsType[*engine.DuplicateError](err); ok {
		id = duplicate.Occupant
	}
	fmt.Println(id, err)
}

func ExampleEngine_InsertMany() {
	specs := make([]fsm.Spec, 0, 1000)
	for id := range int64(cap(specs)) {
		specs = append(specs, checkout.New(order{ID: id}).Key(orderKey(id)))
	}
	results, err := eng.InsertMany(context.Background(), specs)
	if wrong, ok := errors.AsType[*engine.SpecError](err); ok {
		fmt.Println("nothing inserted:", wrong.Index, wrong.Field)
		return
	}
	for i, r := range results {
		fmt.Println(specs[i].Options().Key, r.ID, r.Duplicate)
	}
}

func ExampleEngine_GetOrInsert() {
	got, err := eng.GetOrInsert(context.Background(), checkout.New(order{ID: 42}).KeyFromState())
	fmt.Println(got.ID, got.Duplicate, err)
}

// A webhook: a redelivered event is no error.
func ExampleEngine_Signal() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := eng.Signal(ctx, orderKey(42), received.With(payment{Cents: 4200}).DedupKey("evt-7"))
	switch {
	case errors.Is(err, engine.ErrNoTarget):
		fmt.Println("no such order, or it has ended")
	case err != nil:
		fmt.Println("let the sender try again:", err)
	case d.Duplicate:
		fmt.Println("known already")
	}
}

// An operator's list: the newest that failed, of one customer.
func ExampleEngine_List() {
	page, err := eng.List(context.Background(), engine.Query{
		Filter: engine.Filter{Status: []fsm.Status{fsm.StatusFailed}, Labels: map[string]string{"tenant": "acme"}},
		Limit:  20,
	})
	for _, i := range page.Instances {
		fmt.Println(i.ID, i.Machine, i.Step, i.LastError)
	}
	fmt.Println(page.Next, err) // goes to Query.After
}

// The typed form decodes states and results.
func ExampleEngine_All() {
	q := engine.Query{Filter: engine.Filter{Step: "ship"}, OldestFirst: true}
	for i, err := range checkout.All(context.Background(), eng, q) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(i.ID, i.State.Cents)
	}
}

func ExampleEngine_Counts() {
	counts, err := eng.Counts(context.Background(), engine.CountsOptions{})
	for _, c := range counts.Counts {
		fmt.Println(c.Machine, c.Step, c.Status, c.Count)
	}
	fmt.Println(time.Since(counts.At), counts.Complete, err)
}

// Queries go through the generated client; the machine's type decodes what they find.
func ExampleEngine_Ent() {
	rows, err := eng.Ent().Instance.Query().
		Where(instance.Fsm(checkout.Name()), instance.StatusEQ(fsm.StatusFailed)).Limit(10).All(context.Background())
	if err != nil {
		slog.Error("example", slog.Any("error", err))
		return
	}
	for _, row := range rows {
		state, err := checkout.DecodeState(eng.Codec(), row.State)
		fmt.Println(row.ID, state.Cents, err)
	}
}
