// Command cmd is the program that is deployed: a worker until SIGTERM.
//
//	cmd -url postgres://… -machines old|new|all|one|two [-migrate] [-lease 30s]
//
// It says "ready", and in the end "stopped: " and what Stop returned.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/integration/rollout"
	"github.com/gendurable/gendurable/migrate"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	url := flag.String("url", "", "of the database")
	machines := flag.String("machines", rollout.Old, "which are registered")
	first := flag.Bool("migrate", false, "migrate first")
	lease := flag.Duration("lease", 30*time.Second, "of claims; by default longer than a test takes: whoever needed a reaper would be found")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() { // the pipe ends with the test, in whatever way that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	pool, err := pgxpool.New(ctx, *url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if *first {
		if _, err := (migrate.Migrator{Pool: pool}).Up(ctx); err != nil {
			return err
		}
	}
	eng, err := engine.New(engine.Config{
		Pool: pool, Machines: rollout.Machines(*machines, rollout.Traces{Pool: pool}),
		Queues:       map[string]engine.Queue{"default": {Concurrency: 10, PollMin: 20 * time.Millisecond, PollMax: 200 * time.Millisecond}},
		Lease:        *lease,
		DrainTimeout: 500 * time.Millisecond, DrainGrace: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := eng.Start(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Printf("stopped: %v\n", eng.Stop(context.Background()))
	return nil
}
