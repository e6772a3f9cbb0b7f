// Command cmd renders the desired schema, and compares it with what the migrations build.
//
//	go run ./internal/ddl/cmd schema FILE   write the desired schema to FILE
//	go run ./internal/ddl/cmd drift         fail and print the difference, if there is one
//
// drift works in a separate database on the server whose superuser's URL is in GENDURABLE_TEST_URL,
// or else on a throwaway cluster.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/ddl"
	"github.com/gendurable/gendurable/internal/pgdev"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "schema":
		return writeSchema(ctx, args[1])
	case len(args) == 1 && args[0] == "drift":
		return withServer(ctx, drift)
	default:
		return errors.New("usage: cmd schema FILE | cmd drift")
	}
}

func writeSchema(ctx context.Context, path string) error {
	script, err := ddl.SQL(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil { //nolint:gosec // a source file, for everybody to read
		return fmt.Errorf("write the desired schema: %w", err)
	}
	return nil
}

// withServer calls f with the superuser's URL of a Postgres server.
func withServer(ctx context.Context, f func(ctx context.Context, server string) error) (err error) {
	if server := os.Getenv("GENDURABLE_TEST_URL"); server != "" {
		return f(ctx, server)
	}
	cluster, err := pgdev.Start(ctx)
	if err != nil {
		return fmt.Errorf("start a throwaway cluster: %w", err)
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	return f(ctx, cluster.URL("postgres"))
}

func drift(ctx context.Context, server string) (err error) {
	scratch, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("parse the server's URL: %w", err)
	}
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()

	name := "drift_" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("create a scratch database: %w", err)
	}
	defer func() {
		_, dropping := conn.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
		err = errors.Join(err, dropping)
	}()

	scratch.Path = "/" + name
	statements, err := ddl.Drift(ctx, scratch.String())
	if err != nil {
		return err
	}
	if len(statements) > 0 {
		return fmt.Errorf("the migrations do not build what package schema declares; make migration NAME=… would write:\n%s",
			strings.Join(statements, ";\n"))
	}
	fmt.Println("no drift")
	return nil
}
