package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// wire is a connection outside of the pool that the stores of a company use in turns. Its session
// has its own time limits, since preparing a statement may wait for locks before the transaction
// has set any limit.
type wire struct {
	company *Company
	turn    chan struct{} // held by whoever uses the fields below it
	conn    *pgx.Conn
	made    int64 // how many connections have been made so far
	doomed  bool  // the end of the turn closes the connection

	alive atomic.Int64 // the value of made while there is a connection; 0: there is none
}

// wireSQL sets up a wire's session. $1 lock_timeout $2 statement_timeout
var wireSQL = named("wire", `SELECT set_config('lock_timeout', $1, false), set_config('statement_timeout', $2, false),
  set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false), set_config('idle_session_timeout', '0', false),
  {untimed}`)

// take begins a turn, and reports whether it came before ctx ended.
func (w *wire) take(ctx context.Context) bool {
	select {
	case w.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// give ends a turn.
func (w *wire) give() {
	if w.conn != nil && (w.doomed || !w.company.inhabited()) {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = w.conn.Close(closing)
		cancel()
	}
	if w.conn != nil && w.conn.IsClosed() {
		w.lose()
	}
	<-w.turn
}

// lose forgets a connection that is closed.
func (w *wire) lose() {
	w.conn, w.doomed = nil, false
	w.alive.Store(0)
}

// open dials the connection, if there is none. The caller has the turn.
func (w *wire) open(ctx context.Context, s *Store, lock, limit string) error {
	if w.conn != nil {
		return nil
	}
	conn, err := s.db.Dial(ctx)
	if err != nil {
		return err
	}
	w.conn = conn
	w.made++
	w.alive.Store(w.made)
	err = s.pipelineOn(ctx, conn, s.stmt(wireSQL, nil, lock, limit))
	if err == nil {
		err = w.company.verify(ctx, s, conn)
	}
	w.doomed = err != nil
	return err
}
