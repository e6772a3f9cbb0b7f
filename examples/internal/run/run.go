// Package run gives the examples what they have in common: a migrated database, an end in order,
// and lines of progress.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// Interrupted is the exit code after an interrupt, as shells have it.
const Interrupted = 130

// Main is the main function of a small example: it opens a database, with DATABASE_URL in a schema
// of the example's own, runs the example until it returns or is interrupted, removes the schema
// again and exits.
func Main(schema string, example func(ctx context.Context, out io.Writer, db *Database) error) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // the engine's start and end are not what an example shows
	ctx, stop := SignalContext()
	code := ExitCode(ctx, os.Stderr, main(ctx, schema, example))
	stop()
	os.Exit(code)
}

func main(ctx context.Context, schema string, example func(context.Context, io.Writer, *Database) error) (err error) {
	db, err := Open(ctx, Options{Schema: schema})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return example(ctx, os.Stdout, db)
}

// SignalContext ends with the first SIGINT or SIGTERM. A second one ends the process at once, in
// case the orderly way hangs.
func SignalContext() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// ExitCode reports err on w and turns it into the exit code of the process. ctx comes from
// [SignalContext].
func ExitCode(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		fmt.Fprintln(w, "interrupted:", err) // with what went wrong on the way out, if anything
		return Interrupted
	}
	fmt.Fprintln(w, "error:", err)
	return 1
}
