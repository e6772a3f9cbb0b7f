// Command gendurable operates gendurable: it migrates the schema, lists, explains and changes
// instances, shows the workers and their work, and finds faults. See docs/guide/cli.md.
//
// Each noun has a file; cli.go parses the command line and returns the exit code, output.go writes
// tables and JSON. A command is a struct with a method Run, which gets a context and an [app], and
// knows neither os.Stdout nor os.Exit: tests call [run].
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if isVetTool(os.Args[1:]) {
		if err := serveVet(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "gendurable:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], standard())
	stop()
	os.Exit(int(code))
}
