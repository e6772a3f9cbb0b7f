package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

// WorkerRole is the first argument of a worker process: a program that calls [Run] calls
// [WorkerMain] when it finds it in os.Args[1].
const WorkerRole = "orders-worker"

// settingsVariable holds a worker's settings as JSON; an argument would show the database's
// password to everyone on the machine.
const settingsVariable = "GENDURABLE_ORDERS_WORKER"

// settings of a worker process.
type settings struct {
	URL         string        `json:"url"`
	SearchPath  string        `json:"search_path"`
	Schema      string        `json:"schema"`
	Name        string        `json:"name"`
	Start       string        `json:"start"` // random: tells this process from others of the name
	Concurrency int           `json:"concurrency"`
	Latency     time.Duration `json:"latency"`
	PayWithin   time.Duration `json:"pay_within"`
}

// The demo is short, so leases are: a dead worker's orders are free again after lease + reap at the
// latest.
const (
	lease     = 3 * time.Second
	heartbeat = time.Second
	reap      = time.Second
)

// WorkerMain is the main function of a worker process: it works until SIGTERM, SIGINT or the end of
// the process that started it, then drains. It returns the exit code.
func WorkerMain() int {
	ctx, stop := run.SignalContext()
	defer stop()
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s); err != nil {
		return run.ExitCode(ctx, os.Stderr, fmt.Errorf("read $%s: %w", settingsVariable, err))
	}
	// Standard input is a pipe from the parent: it ends when the parent does, in whatever way.
	ctx, orphaned := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		orphaned()
	}()
	return run.ExitCode(ctx, os.Stderr, work(ctx, s))
}

func work(ctx context.Context, s settings) (err error) {
	db, err := run.Connect(ctx, s.URL, s.Name, s.SearchPath)
	if err != nil {
		return err
	}
	defer db.Close()
	var stale atomic.Int64
	greeting := greeter{db: db, start: s.Start}
	machine := checkout{outside: &outside{db: db, latency: s.Latency}, payWithin: s.PayWithin}
	eng, err := engine.New(engine.Config{
		Pool:      db,
		Schema:    s.Schema,
		Machines:  []fsm.Definition{machine.Definition(), hello.Job(greeting.register)},
		Queues:    map[string]engine.Queue{"checkout": {Concurrency: s.Concurrency}, s.Name: {Concurrency: 1}},
		Lease:     lease,
		Heartbeat: heartbeat,
		Reap:      reap,
		NoGC:      true, // the report reads what has ended
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)).With(slog.String("process", s.Name)),
		Hooks:     []engine.Hooks{{Stale: func(context.Context, engine.StaleEvent) { stale.Add(1) }}},
	})
	if err != nil {
		return err
	}
	if _, err := eng.Insert(ctx, hello.New(s.Name).Queue(s.Name)); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	return errors.Join(eng.Run(ctx), greeting.goodbye(stale.Load()))
}

// hello makes a process known by what the engine calls it, so that the demo can tell what it had
// claimed when it died. Each process says it on its own queue.
var hello = fsm.Declare[string, fsm.None]("demo.hello")

type greeter struct {
	db    *pgxpool.Pool
	start string
}

func (g greeter) register(ctx context.Context, name string) (fsm.None, error) {
	info, _ := fsm.InfoFrom(ctx)
	_, err := g.db.Exec(ctx, `insert into worker (start, name, identity) select $1, $2, locked_by from gen_durable where id = $3
		on conflict do nothing`, g.start, name, int64(info.ID))
	return fsm.None{}, err
}

// goodbye notes how many outcomes came too late: outcomes of claims that others had taken over
// while this process stood still.
func (g greeter) goodbye(stale int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := g.db.Exec(ctx, `update worker set stale = $2 where start = $1`, g.start, stale)
	return err
}
