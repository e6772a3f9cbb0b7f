package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// trunk is the one connection on which a company sends its heartbeats. It holds the liveness locks
// of all its workers. The lines (lease.go) use the trunk in turns, each for a moment. A beat that
// may take longer, and one that fails here, goes over the line's own connection. The unit of the
// bounds is the line's turn, a fixed part of its heartbeat interval:
//
//   - A line waits at most one turn until it may use the trunk.
//   - A statement takes one turn at most, its wait for a lock included, by the server's clock.
//   - Its holder gives up after trunkTurns turns, dialling included. Then the connection is closed,
//     and with it go the liveness locks of all, until each has taken its own again (at its next
//     tick, as after any loss of a connection).
//
// So a beat that the trunk does not carry begins on the other connection after at most 1 +
// trunkTurns turns, whatever the other lines do. A line that fails here stays away for a while; the
// while doubles if that happens again soon.
type trunk struct{ wire }

// trunkTurns is the number of its turns in which a line may use the trunk.
const trunkTurns = 4

var errTrunkBusy = errors.New("gendurable: the connection of the heartbeats is in use")

// aliveAtOnceSQL takes the lock of aliveSQL without waiting, since others wait for the connection:
// the lock is not free while another process asks whether the worker lives. $1 schema $2 worker
var aliveAtOnceSQL = named("alive at once", `SELECT pg_try_advisory_lock_shared(`+livenessKey("$1::text", "$2::text")+`)`)

// goneSQL releases a worker's liveness lock. $1 schema $2 worker
var goneSQL = named("gone", `SELECT pg_advisory_unlock_shared(`+livenessKey("$1::text", "$2::text")+`)`)

// use lets a line use the connection, after it has taken the line's liveness lock there.
func (t *trunk) use(ctx context.Context, l *Line, send func(ctx context.Context, conn *pgx.Conn) error) error {
	waiting, stop := context.WithTimeout(ctx, l.turn)
	defer stop()
	if !t.take(waiting) {
		return errTrunkBusy
	}
	defer t.give()
	t.company.enter(l.s)
	ctx, cancel := context.WithTimeout(ctx, trunkTurns*l.turn)
	defer cancel()
	err := t.try(ctx, l, send)
	if err != nil && ctx.Err() == nil && t.conn != nil && t.conn.IsClosed() {
		t.lose() // the connection was dead before this turn
		err = t.try(ctx, l, send)
	}
	if err != nil && t.conn != nil && (!t.conn.IsClosed() || errors.Is(ctx.Err(), context.DeadlineExceeded)) && !errors.Is(err, errTrunkBusy) {
		l.outside.begin()
	}
	return err
}

func (t *trunk) try(ctx context.Context, l *Line, send func(ctx context.Context, conn *pgx.Conn) error) error {
	err := t.open(ctx, l.s, millis(l.turn), millis(l.turn))
	if err == nil {
		err = t.live(ctx, l)
	}
	if err == nil {
		err = send(ctx, t.conn)
	}
	return err
}

// live takes the liveness lock of a line, once per connection.
func (t *trunk) live(ctx context.Context, l *Line) error {
	if l.worker == "" || l.held == t.made {
		return nil
	}
	var alive bool
	if err := l.s.pipelineOn(ctx, t.conn, l.s.stmt(aliveAtOnceSQL, readOne(&alive), l.s.schema, l.worker)); err != nil {
		t.doomed = true // the lock may be held already, and would be held twice
		return fmt.Errorf("take the liveness lock of worker %s: %w", l.worker, err)
	}
	if !alive {
		return errTrunkBusy
	}
	l.held = t.made
	return nil
}

// leave releases the liveness lock of a line for good. The last line of the company to leave closes
// the connection. If the turn does not come before ctx ends, leave does this later.
func (t *trunk) leave(ctx context.Context, l *Line) {
	if t.take(ctx) {
		t.left(l)
		return
	}
	go func() { // the turn of another ends soon
		t.turn <- struct{}{}
		t.left(l)
	}()
}

// left does the work of leave. The caller has the turn.
func (t *trunk) left(l *Line) {
	defer t.give()
	t.company.leave(l.s)
	if t.conn == nil || l.worker == "" || l.held != t.made || !t.company.inhabited() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if l.s.pipelineOn(ctx, t.conn, l.s.stmt(goneSQL, nil, l.s.schema, l.worker)) != nil {
		t.doomed = true
	}
}
