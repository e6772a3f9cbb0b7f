// Command cmd soaks the engine: see package soak. It starts itself as every process of the soak.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/gendurable/gendurable/integration/soak"
)

func main() {
	if code, played := soak.Play(); played {
		os.Exit(code)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		if errors.Is(err, soak.ErrStoodStill) {
			os.Exit(soak.StoodStill)
		}
		os.Exit(1)
	}
}

func run() error {
	o := soak.Options{Out: os.Stdout}
	flag.IntVar(&o.Seconds, "seconds", 180, "how long faults reign")
	flag.Uint64Var(&o.Seed, "seed", 0, "of all that is random; 0: a new one")
	flag.BoolVar(&o.Recovery, "recovery", false, "hold the recovery from kills to its bound")
	flag.StringVar(&o.Calls, "calls", "", "the file that gets the record of clients' calls, for bin/calls")
	flag.BoolVar(&o.Keep, "keep", false, "keep the log")
	flag.Parse()
	if o.Seed == 0 {
		o.Seed = rand.Uint64() >> 32 //nolint:gosec // short enough to type
	}
	var err error
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return soak.Run(ctx, o)
}
