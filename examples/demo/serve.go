package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
)

// serve shows the demo in the dashboard while it runs, to this machine, at a free port. The
// function that it returns ends that.
func serve(ctx context.Context, db *run.Database) (address string, end func() error, err error) {
	// The engine is a client, with separate connections: pages must not slow the demo down.
	pool, err := run.Connect(ctx, db.URL, "dashboard", "pg_catalog")
	if err != nil {
		return "", nil, err
	}
	eng, err := engine.New(engine.Config{Pool: pool, Schema: db.Schema})
	if err != nil {
		pool.Close()
		return "", nil, err
	}
	pages, err := dashboard.New(eng, dashboard.Options{Refresh: 2 * time.Second})
	if err != nil {
		pool.Close()
		return "", nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		pool.Close()
		return "", nil, err
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until it is closed
	}()
	return "http://" + listener.Addr().String() + "/", func() error {
		err := server.Close()
		<-ended
		pool.Close()
		return err
	}, nil
}
