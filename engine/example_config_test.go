package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
)

// All faults come at once, each with its field.
func ExampleNew() {
	_, err := engine.New(engine.Config{
		Lease:  30 * time.Second,
		Reap:   -time.Second,
		Queues: map[string]engine.Queue{"checkout": {Concurrency: -1}},
	})
	fmt.Println(err)
	// Output:
	// gendurable: config: Pool: nil, want a *pgxpool.Pool
	// gendurable: config: Reap: -1s is negative
	// gendurable: config: Queues[checkout].Concurrency: -1 is negative
	// gendurable: config: Machines: none, but Queues are set: add the machines, or leave Queues out
}

// A ConfigError names its field, for programs that read their configuration from elsewhere.
func ExampleConfigError() {
	_, err := engine.New(engine.Config{Lease: -1})
	if wrong, ok := errors.AsType[*engine.ConfigError](err); ok {
		fmt.Println(wrong.Field)
	}
	// Output: Pool
}

func ExampleConfig_WithDefaults() {
	c := engine.Config{Queues: map[string]engine.Queue{"checkout": {}}}.WithDefaults()
	fmt.Println(c.Lease, c.Heartbeat, c.Limits.PayloadBytes)
	// Output: 1m0s 20s 1048576
}

// Middleware that labels what it inserts, and one that measures steps.
func ExampleMiddleware() {
	shop := openShop(func(c *engine.Config) {
		c.Middleware = []engine.Middleware{{
			Insert: func(_ context.Context, spec fsm.Spec) (fsm.Spec, error) { return spec.Label("source", "web"), nil },
			Step: func(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
				err := run(ctx)
				if i.Step == "start" {
					fmt.Println("ran", i.Step, err)
				}
				return err
			},
		}}
	})
	defer shop.close()
	id := shop.place(42)
	i, err := shop.eng.Get(context.Background(), id)
	fmt.Println(i.Labels, err)
	// Output:
	// ran start <nil>
	// map[customer:ada source:web] <nil>
}

// Whichever process is there fires them, and each occurrence once.
func ExampleCron() {
	_, err := engine.New(engine.Config{Schedules: []engine.Schedule{
		engine.Cron("nightly", "0 3 * * *", checkout.New(order{ID: 42})).In("Europe/Berlin").CatchUp(engine.CatchUpLatest),
		engine.Cron("n", "0 33 * * *", checkout.New(order{ID: 42})),
	}})
	fmt.Println(err)
	// Output:
	// gendurable: config: Pool: nil, want a *pgxpool.Pool
	// gendurable: config: Schedules[n].Expression: "0 33 * * *": hour, at position 3: 33, want 0 to 23
}

// Start stores the schedules of the Config; Admin lists and runs them.
func ExampleEvery() {
	shop := openShop(func(c *engine.Config) {
		c.Schedules = []engine.Schedule{
			engine.Every("pulse", time.Hour, checkout.New(order{ID: 42})).Overlap(engine.OverlapSkip).Jitter(5 * time.Second),
		}
	})
	defer shop.close()
	for s, err := range shop.eng.Admin().AllSchedules(context.Background(), engine.ScheduleQuery{}) {
		fmt.Println(s.Name, s.Expression, s.Overlap, s.Machine, err)
	}
	// Output: pulse @every 1h0m0s skip checkout <nil>
}

func ExampleAdmin_RunSchedule() {
	shop := openShop(func(c *engine.Config) {
		c.Schedules = []engine.Schedule{engine.Cron("nightly", "0 3 * * *", checkout.New(order{ID: 42})).Overlap(engine.OverlapSkip)}
	})
	defer shop.close()
	ctx := context.Background()
	_, err := shop.eng.Admin().RunSchedule(ctx, "nightly")
	fmt.Println(err)
	_, err = shop.eng.Admin().RunSchedule(ctx, "nightly")
	fmt.Println("one of it is under way:", errors.Is(err, engine.ErrConflict))
	// Output:
	// <nil>
	// one of it is under way: true
}

// A driver that is surrounded sees every statement: here the statements of one insert, in one round
// trip.
func ExampleConfig_driver() {
	var names []string
	shop := openShop(func(c *engine.Config) {
		c.Queues = nil // a client sends nothing by itself
		c.Driver = entpgx.New(c.Pool).Around(func(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
			for _, s := range stmts {
				names = append(names, s.Name)
			}
			return send(ctx) // within a span, say
		})
	})
	defer shop.close()
	names = nil
	_, err := shop.eng.Insert(context.Background(), checkout.New(order{ID: 42}))
	fmt.Println(names, err) // the first insert also asks whether its role may read the gates
	// Output: [begin settings may read gates insert commit] <nil>
}
