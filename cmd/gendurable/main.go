// Command gendurable is for whoever operates gendurable: it migrates the schema, lists, explains
// and changes instances, says who works on what, and looks for what is wrong. See
// docs/guide/cli.md.
//
// A file per noun; cli.go parses and ends with a code, output.go writes tables and JSON. A command
// is a struct with a method Run, which gets a context and an [app], and knows neither os.Stdout nor
// os.Exit: tests call [run].
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], standard())
	stop()
	os.Exit(int(code))
}
