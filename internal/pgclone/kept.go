package pgclone

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// keptMost bounds the connections that a process keeps open on one server, between its tests.
const keptMost = 2

// kept has the idle connections by what they were opened with. A connection costs the server more
// than a copy of a small database does, and each test makes one and drops one.
var (
	keptMu sync.Mutex
	kept   = map[string][]*pgx.Conn{}
)

// OnKept runs f as [On] does, on a connection that an earlier call has left open, if there is one.
// The function must not change the session.
func OnKept(ctx context.Context, server *pgxpool.Config, f func(conn *pgx.Conn) error) error {
	if server.BeforeConnect != nil {
		return On(ctx, server, f) // it may connect each time as another role
	}
	c := server.ConnConfig
	key := fmt.Sprintf("%q %d %q %q %q", c.Host, c.Port, c.User, c.Password, c.Database)
	conn := take(ctx, key)
	if conn == nil {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, c.Copy()); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	defer keep(ctx, key, conn)
	return f(conn)
}

// take returns a connection that still answers, or nil.
func take(ctx context.Context, key string) *pgx.Conn {
	for {
		keptMu.Lock()
		idle := kept[key]
		if len(idle) == 0 {
			keptMu.Unlock()
			return nil
		}
		conn := idle[len(idle)-1]
		kept[key] = idle[:len(idle)-1]
		keptMu.Unlock()
		if conn.Ping(ctx) == nil {
			return conn
		}
		_ = conn.Close(ctx)
	}
}

// keep keeps a connection for the next call, unless it is broken or there are enough.
func keep(ctx context.Context, key string, conn *pgx.Conn) {
	if !conn.IsClosed() {
		keptMu.Lock()
		if len(kept[key]) < keptMost {
			kept[key] = append(kept[key], conn)
			conn = nil
		}
		keptMu.Unlock()
	}
	if conn != nil {
		_ = conn.Close(ctx)
	}
}

// CloseKept closes the connections that are kept. One may have a goroutine of pgx's, which reads
// until the next answer if a statement took long to send.
func CloseKept(ctx context.Context) {
	keptMu.Lock()
	defer keptMu.Unlock()
	for key, idle := range kept {
		for _, conn := range idle {
			_ = conn.Close(ctx)
		}
		delete(kept, key)
	}
}
