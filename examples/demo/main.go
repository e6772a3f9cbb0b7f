// Demo runs the two large examples on a real Postgres, checks everything they did, and leaves
// nothing behind.
//
//	go run ./examples/demo [-orders n] [-dir directory] [-keep] [orders | ingest]
//
// It uses DATABASE_URL, in new schemas; without it, a new Postgres from the binaries on this
// machine. With -keep, or KEEP=1, the database stays, and the next run with it resumes what an
// interrupt or a crash cut short.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gendurable/gendurable/examples/ingest"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/examples/orders"
)

const (
	schema     = "gendurable_demo"
	shopSchema = schema + "_shop"
)

// options of the command line. Each flag takes its default from the environment, since make passes
// its variables there.
type options struct {
	orders    int
	directory string
	keep      bool
	parts     []string
}

func main() {
	// The demo's worker processes are this same program.
	if len(os.Args) > 1 && os.Args[1] == orders.WorkerRole {
		os.Exit(orders.WorkerMain())
	}
	slog.SetLogLoggerLevel(slog.LevelWarn) // the engines' starts and ends are not what the demo shows
	o, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		os.Exit(2) // parse has said why
	}
	ctx, stop := run.SignalContext()
	code := run.ExitCode(ctx, os.Stderr, demo(ctx, o, os.Stdout))
	stop()
	os.Exit(code)
}

func parse(args []string) (o options, err error) {
	fromEnv, err := strconv.Atoi(cmp.Or(os.Getenv("ORDERS"), "3000"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "ORDERS is not a number:", os.Getenv("ORDERS"))
		return o, err
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.IntVar(&o.orders, "orders", fromEnv, "how many `orders` go through the shop; also $ORDERS")
	flags.StringVar(&o.directory, "dir", os.Getenv("DIR"), "`directory` to ingest; also $DIR (default: the Go installation's source)")
	flags.BoolVar(&o.keep, "keep", os.Getenv("KEEP") == "1", "keep the database and resume; also KEEP=1")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.parts = flags.Args()
	for _, part := range o.parts {
		if part != "orders" && part != "ingest" {
			err := fmt.Errorf("no such part: %q; there are orders and ingest", part)
			fmt.Fprintln(os.Stderr, err)
			return o, err
		}
	}
	return o, nil
}

func (o options) wants(part string) bool {
	return len(o.parts) == 0 || slices.Contains(o.parts, part)
}

func demo(ctx context.Context, o options, out io.Writer) (err error) {
	progress := run.NewProgress(out)
	progress.Say("open the database")
	db, err := run.Open(ctx, run.Options{Schema: schema, Also: []string{shopSchema}, Keep: o.keep})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(db, o, progress)) }()
	progress.Say("schema %s is migrated, in %s", schema, db.Where())
	address, end, err := serve(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	progress.Say("watch it at %s while it runs", address)

	if o.wants("orders") {
		if err := orders.Run(ctx, orders.Options{
			URL: db.URL, Schema: schema, Shop: shopSchema, Orders: o.orders, Progress: progress,
		}); err != nil {
			return err
		}
	}
	if o.wants("ingest") {
		directory := o.directory
		if directory == "" {
			if directory, err = goSource(ctx); err != nil {
				return err
			}
		}
		if err := ingest.Run(ctx, ingest.Options{Pool: db.Pool, Schema: schema, Directory: directory, Progress: progress}); err != nil {
			return err
		}
	}
	return nil
}

func closeAll(db *run.Database, o options, progress *run.Progress) error {
	if err := db.Close(); err != nil {
		return err
	}
	if o.keep {
		progress.Say("kept: %s. To resume, run again with KEEP=1; to remove it: %s", db.Where(), db.Forget())
	} else {
		progress.Say("all removed again")
	}
	return nil
}

// goSource is a tree of some ten thousand files that every reader of this has.
func goSource(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the Go installation, or say which directory to ingest by DIR=…: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "src"), nil
}
