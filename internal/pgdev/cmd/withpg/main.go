// Command withpg runs a command with a throwaway Postgres: it starts a cluster, puts the
// superuser's URL into the environment variable GENDURABLE_TEST_URL, runs the command, stops the
// cluster and exits with the command's code.
//
//	withpg [-fsync] [-set name=value]... command [argument...]
//	withpg -install
//	withpg -fetch major directory
//
// Without -fsync the cluster is in memory if there is much of it; TMPDIR puts it elsewhere.
//
// If the variable is set already, withpg uses that server and starts none. With -install it
// installs the parts of Postgres and PgBouncer that the machine lacks; with -fetch it puts the
// binaries of a major version of Postgres into a directory. Neither runs a command. Servers that
// the command starts by package pgdev share one initdb.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// urlVariable is the name that package pgtest reads.
const urlVariable = "GENDURABLE_TEST_URL"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	os.Exit(code)
}

// run returns the exit code; with its own error, the code is not zero.
func run(arguments []string) (int, error) {
	flags := flag.NewFlagSet("withpg", flag.ContinueOnError)
	install := flags.Bool("install", false, "install Postgres and PgBouncer, as root by apt-get")
	fetch := flags.Int("fetch", 0, "put the binaries of this `major` version of Postgres into the directory that follows")
	fsync := flags.Bool("fsync", false, "survive crashes, as in production (slower)")
	// Each test has a database, and autovacuum would begin a process for each once a minute.
	options := []pgdev.Option{pgdev.WithSetting("max_connections", "400"), pgdev.WithSetting("autovacuum_naptime", "5min")}
	flags.Func("set", "server parameter as `name=value`, repeatable", func(setting string) error {
		name, value, ok := strings.Cut(setting, "=")
		if !ok {
			return errors.New("want name=value")
		}
		options = append(options, pgdev.WithSetting(name, value))
		return nil
	})
	if err := flags.Parse(arguments); err != nil {
		return 2, err
	}
	switch {
	case *install:
		return failed(pgdev.Install(context.Background(), os.Stderr))
	case *fetch != 0 && flags.NArg() == 1:
		return failed(pgdev.Fetch(context.Background(), *fetch, flags.Arg(0)))
	case *fetch != 0:
		return 2, errors.New("-fetch: want one directory")
	}
	if flags.NArg() == 0 {
		return 2, errors.New("no command given")
	}
	// From here on signals go to the command; withpg ends when the command does.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if os.Getenv(urlVariable) != "" {
		return command(flags.Args(), os.Environ(), signals)
	}
	if !*fsync {
		options = append(options, pgdev.WithoutFsync())
	}
	ctx, cancel := interruptible(signals)
	cluster, err := pgdev.Start(ctx, options...)
	cancel()
	if err != nil {
		return 1, err
	}
	code, err := command(flags.Args(), append(os.Environ(), urlVariable+"="+cluster.URL(""), pgdev.PristineVariable+"="+cluster.Pristine()), signals)
	if stopErr := cluster.Stop(); stopErr != nil {
		return max(code, 1), errors.Join(err, stopErr)
	}
	return code, err
}

func failed(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// interruptible returns a context that a signal ends, until there is a command to which signals go.
func interruptible(signals chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// command runs the command, passes signals on and returns its exit code; after a signal n the code
// is 128 + n, as in shells.
func command(arguments, environment []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(arguments[0], arguments[1:]...) //nolint:noctx // it ends by itself or by a signal
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, environment
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("start %s: %w", arguments[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case received := <-signals:
			// An error means that the command has just ended, which done reports.
			_ = cmd.Process.Signal(received)
		case err := <-done:
			return exitCode(cmd.ProcessState, err)
		}
	}
}

func exitCode(state *os.ProcessState, err error) (int, error) {
	if state == nil {
		return 1, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return state.ExitCode(), nil
}
