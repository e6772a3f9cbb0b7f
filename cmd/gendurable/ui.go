package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/gendurable/gendurable/dashboard"
)

type uiCommand struct {
	Listen   string `default:"127.0.0.1:8080"               help:"The address to listen on; only requests from this machine are answered." placeholder:"ADDRESS"`
	ReadOnly bool   `help:"Show no verbs, and refuse them."`
}

func (*uiCommand) lasts() bool { return true }

// Run runs the command.
func (c *uiCommand) Run(ctx context.Context, a *app, db *database) error {
	level := dashboard.Operate
	if c.ReadOnly {
		level = dashboard.Read
	}
	// The server answers this machine only, and names whoever started it in the audit.
	handler, err := dashboard.New(db.Engine, dashboard.Options{
		Authorize: dashboard.Loopback(dashboard.Access{Level: level, Actor: cmp.Or(a.Actor, systemUser())}),
		Logger:    a.logger(slog.LevelWarn),
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return usagef("--listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	a.tell("The dashboard of schema %s is at http://%s/ until ctrl-c.\n", db.schema, listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop the server: %w", err)
	}
	return nil
}
