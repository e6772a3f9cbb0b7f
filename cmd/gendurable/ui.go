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

// serving is the part of a command that serves a dashboard.
type serving struct {
	Listen   string `default:"127.0.0.1:8080"               help:"The address to listen on; only requests from this machine are answered, of browsers that have opened the address that is printed." placeholder:"ADDRESS"`
	ReadOnly bool   `help:"Show no verbs, and refuse them."`
}

func (*serving) lasts() bool { return true }

type uiCommand struct{ serving }

// Run runs the command.
func (c *uiCommand) Run(ctx context.Context, a *app, db *database) error {
	return c.serve(ctx, a, "schema "+db.schema, func(o dashboard.Options) (http.Handler, error) { return dashboard.New(db.all, o) })
}

type clusterUI struct {
	placed
	serving
}

// Run runs the command.
func (c *clusterUI) Run(ctx context.Context, a *app) error {
	at, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	return c.serve(ctx, a, fmt.Sprint(len(at.list), " places"), func(o dashboard.Options) (http.Handler, error) {
		return dashboard.NewCluster(at.Cluster, o)
	})
}

// serve serves until ctx ends. It answers this machine only, and of it the browsers that have
// opened a printed address: the audit names the user who started it.
func (c *serving) serve(ctx context.Context, a *app, of string, build func(dashboard.Options) (http.Handler, error)) error {
	level := dashboard.Operate
	if c.ReadOnly {
		level = dashboard.Read
	}
	within, err := a.bounds()
	if err != nil {
		return err
	}
	handler, err := build(dashboard.Options{
		Authorize: dashboard.Loopback(dashboard.Access{Level: level, Actor: cmp.Or(a.Actor, systemUser()), Within: within}),
		Logger:    a.logger(slog.LevelWarn),
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return usagef("--listen: %w", err)
	}
	say := func(format string, args ...any) { fmt.Fprintf(a.console.errs, format, args...) } // also with --json: nothing else lets anyone in
	let := newSessions(handler, listener.Addr())
	server := &http.Server{
		Handler: let, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
	say("The dashboard of %s is at %s until ctrl-c.\n", of, let.open())
	if a.console.interactive {
		say("It lets one browser in, within %d minutes. Press Enter for another address.\n", int(tokenLife.Minutes()))
		go let.more(a.console.in, say) // until the process ends: a read of a terminal cannot be ended
	}
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
