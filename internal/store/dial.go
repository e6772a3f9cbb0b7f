package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// dialler makes a connection for callers that have less time than that may take. An attempt goes on
// when its caller gives up, and the next caller waits for it. If each began anew, a process on a
// busy machine would never connect, and each attempt would cost the server a backend (T216). A
// dialler is not safe for concurrent use.
type dialler struct {
	made   chan dialled // the attempt under way; nil: none
	cancel context.CancelFunc
	limit  time.Duration // of that attempt
}

type dialled struct {
	conn *pgx.Conn
	err  error
}

// An attempt has dialLeast at first, and twice as long after each that ran out of its time, up to
// dialMost. So a slow server is reached in the end, and a dead address is given up soon.
const (
	dialLeast = time.Second
	dialMost  = 8 * time.Second
)

// open waits for a connection until ctx ends. Only the values of ctx reach dial.
func (d *dialler) open(ctx context.Context, dial func(ctx context.Context) (*pgx.Conn, error)) (*pgx.Conn, error) {
	if d.made == nil {
		d.begin(ctx, dial)
	}
	select {
	case got := <-d.made:
		d.made = nil
		d.cancel()
		if !errors.Is(got.err, context.DeadlineExceeded) {
			d.limit = 0
		}
		return got.conn, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a new connection, which is still being opened: %w", ctx.Err())
	}
}

func (d *dialler) begin(ctx context.Context, dial func(ctx context.Context) (*pgx.Conn, error)) {
	d.limit = min(max(dialLeast, 2*d.limit), dialMost)
	ctx, d.cancel = context.WithTimeout(context.WithoutCancel(ctx), d.limit)
	made := make(chan dialled, 1)
	d.made = made
	go func() {
		conn, err := dial(ctx)
		made <- dialled{conn, err}
	}()
}

// stop gives up the attempt under way. It waits for its end until ctx ends. A connection that comes
// later is closed, too.
func (d *dialler) stop(ctx context.Context) {
	if d.made == nil {
		return
	}
	d.cancel()
	made := d.made
	*d = dialler{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if got := <-made; got.conn != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = got.conn.Close(closing)
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
